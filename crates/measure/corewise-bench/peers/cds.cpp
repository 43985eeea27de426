// libcds: Michael's hash table, the split-ordered list and Feldman's multi-level array, all with
// hazard pointers.
#include "peer.hpp"

#include <cds/gc/hp.h>
#include <cds/init.h>

#include <cds/container/feldman_hashmap_hp.h>
#include <cds/container/michael_kvlist_hp.h>
#include <cds/container/michael_list_hp.h>
#include <cds/container/michael_map.h>
#include <cds/container/split_list_map.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace {

using GC = cds::gc::HP;

struct ListTraits : cds::container::michael_list::traits {
    using less = std::less<std::uint64_t>;
    using allocator = peer::Allocator<int>;
};

struct MichaelTraits : cds::container::michael_map::traits {
    using hash = peer::Hash;
    using allocator = peer::Allocator<int>;
};

struct SplitTraits : cds::container::split_list::traits {
    using ordered_list = cds::container::michael_list_tag;
    using ordered_list_traits = ListTraits;
    using hash = peer::Hash;
    using allocator = peer::Allocator<int>;
};

/// Feldman's map keeps the hash in place of the key, so the hash must be a bijection: the common
/// one is not. One multiplication by the common hash's odd constant, and a shift that can be
/// undone, so that low bits, which choose the slot, depend on all of the key.
struct Bijection {
    std::uint64_t operator()(std::uint64_t key) const noexcept
    {
        std::uint64_t product = (key ^ 0x243f6a8885a308d3u) * 0x2d358dccaa6c78a5u;
        return product ^ (product >> 32);
    }
};

// What the library frees without telling its size has the size in front.
constexpr std::size_t header = 16;

void *allocate_sized(std::size_t size)
{
    auto *memory = static_cast<std::size_t *>(corewise_bench_alloc(size + header, header));
    if (!memory)
        throw std::bad_alloc();
    *memory = size;
    return reinterpret_cast<char *>(memory) + header;
}

void free_sized(void *memory)
{
    if (!memory)
        return;
    auto *front = static_cast<char *>(memory) - header;
    corewise_bench_free(front, *reinterpret_cast<std::size_t *>(front) + header, header);
}

/// For Feldman's arrays, which 2.3.3 gives back as if they had one element each.
template <class T>
struct SizedAllocator {
    using value_type = T;
    static_assert(alignof(T) <= header);

    template <class U>
    struct rebind {
        using other = SizedAllocator<U>;
    };

    SizedAllocator() noexcept = default;
    template <class U>
    SizedAllocator(const SizedAllocator<U> &) noexcept
    {
    }

    T *allocate(std::size_t count)
    {
        return static_cast<T *>(allocate_sized(count * sizeof(T)));
    }
    void deallocate(T *memory, std::size_t) noexcept { free_sized(memory); }
};

struct FeldmanTraits : cds::container::feldman_hashmap::traits {
    using hash = Bijection;
    using less = std::less<std::uint64_t>;
    using allocator = peer::Allocator<int>;
    using node_allocator = SizedAllocator<int>;
};

using List = cds::container::MichaelKVList<GC, std::uint64_t, std::uint64_t, ListTraits>;
using Michael = cds::container::MichaelHashMap<GC, List, MichaelTraits>;
using Split = cds::container::SplitListMap<GC, std::uint64_t, std::uint64_t, SplitTraits>;
using Feldman = cds::container::FeldmanHashMap<GC, std::uint64_t, std::uint64_t, FeldmanTraits>;

/// The library and its hazard pointers, made once and kept to the end of the process.
struct Library {
    Library()
    {
        cds::Initialize();
        GC::set_memory_allocator(allocate_sized, free_sized);
        std::size_t threads = std::max(128u, 2 * std::thread::hardware_concurrency());
        new GC(std::max({Michael::c_nHazardPtrCount, Split::c_nHazardPtrCount,
                         Feldman::c_nHazardPtrCount}),
               threads);
    }

    static void start() { static Library library; }
};

/// Keeps this thread registered; the library counts how often.
struct Attached {
    Attached()
    {
        Library::start();
        cds::threading::Manager::attachThread();
    }
    ~Attached() { cds::threading::Manager::detachThread(); }
};

std::size_t log2_ceil(std::size_t number)
{
    std::size_t bits = 0;
    while ((std::size_t(1) << bits) < number)
        ++bits;
    return bits;
}

Michael *make(Michael *map, std::size_t capacity)
{
    return new (map) Michael(capacity ? capacity : 65536, 1);
}

Split *make(Split *map, std::size_t capacity)
{
    return capacity ? new (map) Split(capacity, 1) : new (map) Split();
}

Feldman *make(Feldman *map, std::size_t capacity)
{
    return capacity ? new (map) Feldman(log2_ceil(capacity), 4) : new (map) Feldman();
}

/// Any of the three. Building and dropping one need hazard pointers too.
template <class Map>
class Table {
public:
    Table(std::size_t capacity, std::size_t)
    {
        Attached attached;
        make(&map, capacity);
    }

    ~Table()
    {
        Attached attached;
        map.~Map();
        GC::force_dispose();
    }

    static void attach() { cds::threading::Manager::attachThread(); }
    static void detach() { cds::threading::Manager::detachThread(); }

    static void settle()
    {
        Attached attached;
        GC::force_dispose();
    }

    bool get(std::uint64_t key, std::uint64_t &value)
    {
        return map.find(key, [&](typename Map::value_type &found) { value = found.second; });
    }

    bool insert(std::uint64_t key, std::uint64_t value) { return map.insert(key, value); }

    bool remove(std::uint64_t key, std::uint64_t &value)
    {
        return map.erase(key, [&](typename Map::value_type &found) { value = found.second; });
    }

    std::size_t size() const { return map.size(); }

private:
    // Built and dropped by hand, while the thread is attached.
    union {
        Map map;
    };
};

using MichaelTable = Table<Michael>;
using SplitTable = Table<Split>;
using FeldmanTable = Table<Feldman>;

} // namespace

PEER_DEFINE(peer_cds_michael, MichaelTable)
PEER_DEFINE(peer_cds_split, SplitTable)
PEER_DEFINE(peer_cds_feldman, FeldmanTable)
