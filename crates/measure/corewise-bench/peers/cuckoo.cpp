// libcuckoo's cuckoohash_map.
#include "peer.hpp"

#include <libcuckoo/cuckoohash_map.hh>

#include <functional>
#include <utility>

namespace {

using Entry = std::pair<const std::uint64_t, std::uint64_t>;
using Map = libcuckoo::cuckoohash_map<std::uint64_t, std::uint64_t, peer::Hash,
                                      std::equal_to<std::uint64_t>, peer::Allocator<Entry>>;

class Table {
public:
    Table(std::size_t capacity, std::size_t)
        : map(capacity ? capacity : std::size_t(libcuckoo::DEFAULT_SIZE))
    {
    }

    static void attach() {}
    static void detach() {}
    static void settle() {}

    bool get(std::uint64_t key, std::uint64_t &value) const
    {
        return map.find_fn(key, [&](const std::uint64_t &found) { value = found; });
    }

    bool insert(std::uint64_t key, std::uint64_t value) { return map.insert(key, value); }

    bool remove(std::uint64_t key, std::uint64_t &value)
    {
        return map.erase_fn(key, [&](std::uint64_t &found) {
            value = found;
            return true;
        });
    }

    std::size_t size() const { return map.size(); }

    void resize_to(std::size_t groups)
    {
        std::size_t hashpower = 0;
        while ((std::size_t(1) << hashpower) < groups * buckets_in_group)
            ++hashpower;
        map.rehash(hashpower);
    }

    std::size_t buckets() const { return map.bucket_count() / buckets_in_group; }

private:
    // Sixteen slots, as other open-addressing tables count them in the section `resize`: this
    // library's buckets of four could not hold eight entries each, as chains do.
    static constexpr std::size_t buckets_in_group = 16 / Map::slot_per_bucket();

    Map map;
};

} // namespace

PEER_DEFINE(peer_cuckoo, Table)
PEER_DEFINE_RESIZE(peer_cuckoo, Table)
