/* liburcu's lock-free resizable hash table (cds_lfht), for one of two flavours of RCU:
 * PEER_QSBR defined, quiescent-state-based; else the default one over membarrier(2). With PEER_SYNC
 * defined a removal waits for a grace period itself instead of leaving it to call_rcu.
 *
 * A thread registers with its first open handle and unregisters with its last. Under QSBR it is
 * online in between and announces a quiescent state every 64 operations of a handle: a thread that
 * keeps a handle open and does nothing holds up reclamation and resizing, as it would for any user
 * of that flavour. */
#define _LGPL_SOURCE /* read-side primitives inline, as the library recommends for speed */
#define URCU_API_MAP
#ifdef PEER_QSBR
#include <urcu/urcu-qsbr.h>
#define NAME(function) peer_urcu_qsbr_##function
#elif defined(PEER_SYNC)
#include <urcu/urcu-memb.h>
#define NAME(function) peer_urcu_sync_##function
#else
#include <urcu/urcu-memb.h>
#define NAME(function) peer_urcu_memb_##function
#endif
#include <urcu/rculfhash.h>

#include "peer.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef PEER_QSBR
PEER_DECLARE(peer_urcu_qsbr)
PEER_DECLARE_RESIZE(peer_urcu_qsbr)
#elif defined(PEER_SYNC)
PEER_DECLARE(peer_urcu_sync)
PEER_DECLARE_RESIZE(peer_urcu_sync)
#else
PEER_DECLARE(peer_urcu_memb)
PEER_DECLARE_RESIZE(peer_urcu_memb)
#endif

struct table {
    struct cds_lfht *hash_table;
    /* The library keeps this to itself, so it is what was asked for last, rounded up. */
    unsigned long buckets;
};

struct entry {
    struct cds_lfht_node node;
    uint64_t key;
    uint64_t value;
    struct rcu_head removed;
};

struct handle {
    struct cds_lfht *table;
    unsigned operations;
};

/* Handles that this thread has open. */
static __thread unsigned open_handles;

static void *allocate(size_t size, size_t align)
{
    void *memory = corewise_bench_alloc(size, align);
    if (!memory) {
        fprintf(stderr, "corewise-bench: the peer urcu is out of memory\n");
        abort();
    }
    return memory;
}

static void enter(void)
{
    if (open_handles++ == 0)
        rcu_register_thread();
}

static void leave(void)
{
    if (--open_handles == 0)
        rcu_unregister_thread();
}

static inline void announce(struct handle *handle)
{
#ifdef PEER_QSBR
    if (++handle->operations % 64 == 0)
        rcu_quiescent_state();
#else
    (void)handle;
#endif
}

static void free_entry(struct entry *entry)
{
    corewise_bench_free(entry, sizeof *entry, _Alignof(struct entry));
}

static void free_removed(struct rcu_head *head)
{
    free_entry(caa_container_of(head, struct entry, removed));
}

static int matches(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, struct entry, node)->key == *(const uint64_t *)key;
}

static struct entry *find(struct cds_lfht *table, uint64_t key)
{
    struct cds_lfht_iter iterator;
    cds_lfht_lookup(table, peer_hash(key), matches, &key, &iterator);
    struct cds_lfht_node *node = cds_lfht_iter_get_node(&iterator);
    return node ? caa_container_of(node, struct entry, node) : NULL;
}

/* The number of buckets for `capacity` entries: a power of two, at least 1. */
static unsigned long buckets_for(size_t capacity)
{
    unsigned long buckets = 1;
    while (buckets < capacity)
        buckets *= 2;
    return buckets;
}

static struct cds_lfht *own(struct peer_table *table)
{
    return ((struct table *)table)->hash_table;
}

static struct peer_table *create_with(size_t capacity, int flags)
{
    struct table *table = allocate(sizeof *table, _Alignof(struct table));
    table->buckets = buckets_for(capacity);
    table->hash_table = cds_lfht_new(table->buckets, 1, 0, flags, NULL);
    if (!table->hash_table) {
        fprintf(stderr, "corewise-bench: cds_lfht_new failed\n");
        abort();
    }
    return (struct peer_table *)table;
}

struct peer_table *NAME(create)(size_t capacity, size_t threads)
{
    (void)threads;
    return create_with(capacity, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING);
}

/* Neither flag: who counts and resizes is told from outside. */
struct peer_table *NAME(create_resizable)(size_t capacity, size_t threads)
{
    (void)threads;
    return create_with(capacity, 0);
}

void NAME(resize_to)(struct peer_table *table, size_t buckets)
{
    ((struct table *)table)->buckets = buckets_for(buckets);
    enter();
    cds_lfht_resize(own(table), ((struct table *)table)->buckets);
    leave();
}

size_t NAME(buckets)(struct peer_table *table)
{
    return ((struct table *)table)->buckets;
}

static void remove_all(struct cds_lfht *table)
{
    struct cds_lfht_iter iterator;
    struct entry *entry;
    rcu_read_lock();
    cds_lfht_for_each_entry(table, &iterator, entry, node) {
        if (cds_lfht_del(table, &entry->node) == 0)
            call_rcu(&entry->removed, free_removed);
    }
    rcu_read_unlock();
}

/* Waits for the table's resizing thread; under QSBR nobody may wait online. */
static void destroy_empty(struct cds_lfht *table)
{
#ifdef PEER_QSBR
    if (open_handles)
        rcu_thread_offline();
#endif
    if (cds_lfht_destroy(table, NULL) != 0) {
        fprintf(stderr, "corewise-bench: cds_lfht_destroy failed\n");
        abort();
    }
#ifdef PEER_QSBR
    if (open_handles)
        rcu_thread_online();
#endif
}

void NAME(destroy)(struct peer_table *table)
{
    enter();
    remove_all(own(table));
    leave();
    rcu_barrier();
    destroy_empty(own(table));
    corewise_bench_free(table, sizeof(struct table), _Alignof(struct table));
}

struct peer_handle *NAME(open)(struct peer_table *table)
{
    struct handle *handle = allocate(sizeof *handle, _Alignof(struct handle));
    handle->table = own(table);
    handle->operations = 0;
    enter();
    return (struct peer_handle *)handle;
}

void NAME(close)(struct peer_handle *handle)
{
    leave();
    corewise_bench_free(handle, sizeof(struct handle), _Alignof(struct handle));
}

bool NAME(get)(struct peer_handle *peer, uint64_t key, uint64_t *value)
{
    struct handle *handle = (struct handle *)peer;
    rcu_read_lock();
    struct entry *entry = find(handle->table, key);
    if (entry)
        *value = entry->value;
    rcu_read_unlock();
    announce(handle);
    return entry != NULL;
}

bool NAME(insert)(struct peer_handle *peer, uint64_t key, uint64_t value)
{
    struct handle *handle = (struct handle *)peer;
    struct entry *entry = allocate(sizeof *entry, _Alignof(struct entry));
    cds_lfht_node_init(&entry->node);
    entry->key = key;
    entry->value = value;
    rcu_read_lock();
    struct cds_lfht_node *present =
        cds_lfht_add_unique(handle->table, peer_hash(key), matches, &key, &entry->node);
    rcu_read_unlock();
    bool inserted = present == &entry->node;
    if (!inserted)
        free_entry(entry);
    announce(handle);
    return inserted;
}

bool NAME(remove)(struct peer_handle *peer, uint64_t key, uint64_t *value)
{
    struct handle *handle = (struct handle *)peer;
    rcu_read_lock();
    struct entry *entry = find(handle->table, key);
    bool removed = entry && cds_lfht_del(handle->table, &entry->node) == 0;
    if (removed) {
        *value = entry->value;
#ifndef PEER_SYNC
        call_rcu(&entry->removed, free_removed);
#endif
    }
    rcu_read_unlock();
#ifdef PEER_SYNC
    if (removed) {
        synchronize_rcu();
        free_entry(entry);
    }
#endif
    announce(handle);
    return removed;
}

size_t NAME(size)(struct peer_table *table)
{
    long before, after;
    unsigned long entries;
    enter();
    rcu_read_lock();
    cds_lfht_count_nodes(own(table), &before, &entries, &after);
    rcu_read_unlock();
    leave();
    return entries;
}

void NAME(settle)(struct peer_table *table)
{
    (void)table;
    rcu_barrier();
}
