/* No table: what the C call costs that every other peer makes too.
 *
 * A key is present if its lowest bit is set. A value's upper half is the key's tag, the upper half
 * of the key times the golden ratio; its lower half is 0. */
#include "peer.h"

PEER_DECLARE(peer_null)

static struct { char unused; } the_table;

static uint64_t stamp_of(uint64_t key)
{
    return (key * 0x9e3779b97f4a7c15u) >> 32 << 32;
}

struct peer_table *peer_null_create(size_t capacity, size_t threads)
{
    (void)capacity;
    (void)threads;
    return (struct peer_table *)&the_table;
}

void peer_null_destroy(struct peer_table *table)
{
    (void)table;
}

struct peer_handle *peer_null_open(struct peer_table *table)
{
    return (struct peer_handle *)table;
}

void peer_null_close(struct peer_handle *handle)
{
    (void)handle;
}

bool peer_null_get(struct peer_handle *handle, uint64_t key, uint64_t *value)
{
    (void)handle;
    *value = stamp_of(key);
    return key & 1;
}

bool peer_null_insert(struct peer_handle *handle, uint64_t key, uint64_t value)
{
    (void)handle;
    (void)value;
    return !(key & 1);
}

bool peer_null_remove(struct peer_handle *handle, uint64_t key, uint64_t *value)
{
    return peer_null_get(handle, key, value);
}

size_t peer_null_size(struct peer_table *table)
{
    (void)table;
    return 0;
}

void peer_null_settle(struct peer_table *table)
{
    (void)table;
}

uint64_t peer_hash_exported(uint64_t key)
{
    return peer_hash(key);
}
