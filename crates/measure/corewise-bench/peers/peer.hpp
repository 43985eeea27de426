// What the C++ peers share: the program's allocator as a C++ one, and the C functions around a
// class.
#ifndef COREWISE_PEER_HPP
#define COREWISE_PEER_HPP

#include "peer.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

namespace peer {

/// A stateless C++ allocator over `corewise_bench_alloc`.
template <class T>
struct Allocator {
    using value_type = T;

    template <class U>
    struct rebind {
        using other = Allocator<U>;
    };

    Allocator() noexcept = default;
    template <class U>
    Allocator(const Allocator<U> &) noexcept
    {
    }

    T *allocate(std::size_t count)
    {
        void *memory = corewise_bench_alloc(count * sizeof(T), alignof(T));
        if (!memory)
            throw std::bad_alloc();
        return static_cast<T *>(memory);
    }

    void deallocate(T *memory, std::size_t count) noexcept
    {
        corewise_bench_free(memory, count * sizeof(T), alignof(T));
    }
};

template <class T, class U>
bool operator==(const Allocator<T> &, const Allocator<U> &) noexcept
{
    return true;
}

template <class T, class U>
bool operator!=(const Allocator<T> &, const Allocator<U> &) noexcept
{
    return false;
}

/// The common hash as a functor.
struct Hash {
    std::size_t operator()(std::uint64_t key) const noexcept { return peer_hash(key); }
};

[[noreturn]] inline void die(const char *peer, const char *what) noexcept
{
    std::fprintf(stderr, "corewise-bench: the peer %s threw an exception: %s\n", peer, what);
    std::abort();
}

/// Runs what may throw; costs nothing while it does not.
template <class Work>
inline auto guarded(const char *peer, Work work) noexcept -> decltype(work())
{
    try {
        return work();
    } catch (const std::exception &error) {
        die(peer, error.what());
    } catch (...) {
        die(peer, "of an unknown type");
    }
}

template <class Table>
Table *own(peer_table *table) noexcept
{
    return reinterpret_cast<Table *>(table);
}

template <class Table>
Table *own(peer_handle *handle) noexcept
{
    return reinterpret_cast<Table *>(handle);
}

template <class Table>
peer_table *create(std::size_t capacity, std::size_t threads)
{
    Table *table = Allocator<Table>().allocate(1);
    return reinterpret_cast<peer_table *>(new (table) Table(capacity, threads));
}

template <class Table>
void destroy(Table *table)
{
    table->~Table();
    Allocator<Table>().deallocate(table, 1);
}

} // namespace peer

// Defines the C functions for a class with `attach`, `detach`, `get`, `insert`, `remove`, `size`
// and `settle`. A handle is the table itself: what is there per thread, the libraries keep in
// thread-local variables.
#define PEER_DEFINE(prefix, Table)                                                          \
    extern "C" {                                                                            \
    PEER_DECLARE(prefix)                                                                    \
    }                                                                                       \
    peer_table *prefix##_create(size_t capacity, size_t threads)                            \
    {                                                                                       \
        return peer::guarded(#prefix, [=] { return peer::create<Table>(capacity, threads); }); \
    }                                                                                       \
    void prefix##_destroy(peer_table *table)                                                \
    {                                                                                       \
        peer::guarded(#prefix, [=] { peer::destroy(peer::own<Table>(table)); });            \
    }                                                                                       \
    peer_handle *prefix##_open(peer_table *table)                                           \
    {                                                                                       \
        peer::guarded(#prefix, [] { Table::attach(); });                                    \
        return reinterpret_cast<peer_handle *>(table);                                      \
    }                                                                                       \
    void prefix##_close(peer_handle *)                                                      \
    {                                                                                       \
        peer::guarded(#prefix, [] { Table::detach(); });                                    \
    }                                                                                       \
    bool prefix##_get(peer_handle *handle, uint64_t key, uint64_t *value)                   \
    {                                                                                       \
        return peer::guarded(#prefix,                                                       \
                             [=] { return peer::own<Table>(handle)->get(key, *value); });   \
    }                                                                                       \
    bool prefix##_insert(peer_handle *handle, uint64_t key, uint64_t value)                 \
    {                                                                                       \
        return peer::guarded(#prefix,                                                       \
                             [=] { return peer::own<Table>(handle)->insert(key, value); }); \
    }                                                                                       \
    bool prefix##_remove(peer_handle *handle, uint64_t key, uint64_t *value)                \
    {                                                                                       \
        return peer::guarded(#prefix,                                                       \
                             [=] { return peer::own<Table>(handle)->remove(key, *value); }); \
    }                                                                                       \
    size_t prefix##_size(peer_table *table)                                                 \
    {                                                                                       \
        return peer::guarded(#prefix, [=] { return peer::own<Table>(table)->size(); });     \
    }                                                                                       \
    void prefix##_settle(peer_table *)                                                      \
    {                                                                                       \
        peer::guarded(#prefix, [] { Table::settle(); });                                    \
    }

// And those of PEER_DECLARE_RESIZE for a class with `resize_to` and `buckets` besides.
#define PEER_DEFINE_RESIZE(prefix, Table)                                                   \
    extern "C" {                                                                            \
    PEER_DECLARE_RESIZE(prefix)                                                             \
    }                                                                                       \
    peer_table *prefix##_create_resizable(size_t capacity, size_t threads)                  \
    {                                                                                       \
        return prefix##_create(capacity, threads);                                          \
    }                                                                                       \
    void prefix##_resize_to(peer_table *table, size_t buckets)                              \
    {                                                                                       \
        peer::guarded(#prefix, [=] { peer::own<Table>(table)->resize_to(buckets); });       \
    }                                                                                       \
    size_t prefix##_buckets(peer_table *table)                                              \
    {                                                                                       \
        return peer::guarded(#prefix, [=] { return peer::own<Table>(table)->buckets(); });  \
    }

#endif
