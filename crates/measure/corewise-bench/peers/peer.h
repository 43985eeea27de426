/* The C ABI between CHTBench and the tables of C and C++ libraries.
 *
 * Each peer defines the functions of PEER_DECLARE with its own prefix; the Rust side
 * (src/adapters/peers.rs) calls them by name, so an operation costs one direct C call.
 *
 *   create     an empty table for `capacity` entries (0: to grow) and `threads` threads
 *   destroy    frees the table and its entries; no handle of it is open
 *   open       this thread's way to a table; registers the thread where the library asks for it.
 *              A thread may have several handles open, to one table or to many
 *   close      closes it, on the thread that opened it
 *   get        whether the key is present, and its value
 *   insert     inserts if absent; whether it did
 *   remove     removes; whether the key was present, and its value
 *   size       entries as the table counts them, while nobody writes
 *   settle     frees what was put off; called while no handle is open
 *
 * A table that can be told to resize, up and down, has those of PEER_DECLARE_RESIZE too:
 *
 *   create_resizable   as create, for a table that is resized by resize_to
 *   resize_to          resizes to this number of buckets, and returns when that is complete; called
 *                      on a thread without an open handle, by one thread at a time, while others use
 *                      theirs
 *   buckets            how many it has; as resize_to, or called while no other thread uses the table
 *
 * No function returns with an exception: what a library throws ends the process with a message.
 */
#ifndef COREWISE_PEER_H
#define COREWISE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peer_table;
struct peer_handle;

#define PEER_DECLARE(prefix)                                                           \
    struct peer_table *prefix##_create(size_t capacity, size_t threads);               \
    void prefix##_destroy(struct peer_table *table);                                   \
    struct peer_handle *prefix##_open(struct peer_table *table);                       \
    void prefix##_close(struct peer_handle *handle);                                   \
    bool prefix##_get(struct peer_handle *handle, uint64_t key, uint64_t *value);      \
    bool prefix##_insert(struct peer_handle *handle, uint64_t key, uint64_t value);    \
    bool prefix##_remove(struct peer_handle *handle, uint64_t key, uint64_t *value);   \
    size_t prefix##_size(struct peer_table *table);                                    \
    void prefix##_settle(struct peer_table *table);

#define PEER_DECLARE_RESIZE(prefix)                                                    \
    struct peer_table *prefix##_create_resizable(size_t capacity, size_t threads);     \
    void prefix##_resize_to(struct peer_table *table, size_t buckets);                 \
    size_t prefix##_buckets(struct peer_table *table);

/* The program's allocator, defined in src/adapters/peers.rs. `corewise_bench_alloc` gives NULL
 * when out of memory; `corewise_bench_free` wants the size and alignment back. */
void *corewise_bench_alloc(size_t size, size_t align);
void corewise_bench_free(void *pointer, size_t size, size_t align);

/* `peer_hash` as a function, for the test that compares it with Rust's. */
uint64_t peer_hash_exported(uint64_t key);

/* The common hash: `hash_u64` of src/hash.rs. */
static inline uint64_t peer_hash(uint64_t key)
{
    unsigned __int128 wide =
        (unsigned __int128)(key ^ 0x243f6a8885a308d3u) * 0x2d358dccaa6c78a5u;
    return (uint64_t)(wide >> 64) ^ (uint64_t)wide;
}

#ifdef __cplusplus
}
#endif

#endif
