// oneTBB's concurrent_hash_map.
#include "peer.hpp"

#include <tbb/concurrent_hash_map.h>

#include <utility>

namespace {

struct Compare {
    std::size_t hash(std::uint64_t key) const { return peer_hash(key); }
    bool equal(std::uint64_t a, std::uint64_t b) const { return a == b; }
};

using Entry = std::pair<const std::uint64_t, std::uint64_t>;
using Map = tbb::concurrent_hash_map<std::uint64_t, std::uint64_t, Compare, peer::Allocator<Entry>>;

// Not of those that resize on request: rehash() grows only, and may not run beside other operations.
class Table {
public:
    Table(std::size_t capacity, std::size_t) : map(capacity) {}

    static void attach() {}
    static void detach() {}
    static void settle() {}

    bool get(std::uint64_t key, std::uint64_t &value) const
    {
        Map::const_accessor found;
        if (!map.find(found, key))
            return false;
        value = found->second;
        return true;
    }

    bool insert(std::uint64_t key, std::uint64_t value) { return map.insert({key, value}); }

    bool remove(std::uint64_t key, std::uint64_t &value)
    {
        Map::accessor found;
        if (!map.find(found, key))
            return false;
        value = found->second;
        return map.erase(found);
    }

    std::size_t size() const { return map.size(); }

private:
    Map map;
};

} // namespace

PEER_DEFINE(peer_tbb, Table)
