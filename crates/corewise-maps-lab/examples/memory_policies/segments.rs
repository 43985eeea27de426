//! Items in a log of segments, reclaimed one segment at a time.

use crate::ghost::Ghost;
use crate::replay::{Cache, KEY_BYTES, Now, Request, Work, expired};

const NONE: u32 = u32::MAX;
/// Header of an item, including the table's link.
const HEADER_BYTES: u32 = 32;
/// Bytes of the table per item.
const TABLE_BYTES: u64 = 16;
/// Bytes of a ghost entry.
const GHOST_BYTES: u64 = 4;
/// Segments that are merged into one by [`Policy::Merge`].
const MERGED: usize = 4;
/// Upper bounds of the classes of times to live, in seconds; the first class never expires.
const TTL_CLASSES: [u16; 5] = [0, 10, 60, 600, 3600];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Evicts the oldest segment, whole.
    Fifo,
    /// Evicts any segment, whole.
    Random,
    /// \[Segcache\]: four segments become one, with the best items by hits per byte.
    Merge,
    /// Visited items of the oldest segment start again at the new end.
    Clock,
    /// Visited items stay where they are.
    Sieve,
    /// A small queue, a main queue, and a ghost.
    S3,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) policy: Policy,
    pub(crate) segment_bytes: u32,
    /// Whether segments are separate by time to live.
    pub(crate) ttl_classes: bool,
    /// Least number of seconds between two searches of a segment for expired items; 0 for never.
    pub(crate) sweep_s: u32,
    /// Segments with a smaller live share are compacted before anything is evicted; 0 for never.
    pub(crate) clean_below: f64,
    /// Threads; each has separate open segments.
    pub(crate) threads: u32,
    /// S3: share of the small queue.
    pub(crate) small_share: f64,
    /// S3: hits that bring an item from the small queue to the main one.
    pub(crate) promote_at: u8,
    /// S3: largest hit count.
    pub(crate) max_count: u8,
    /// S3: ghost entries for each item in the main queue.
    pub(crate) ghost_share: f64,
    /// S3: an item needs one more hit per this multiple of the mean size, and pays these hits when
    /// it stays; 0 for never.
    pub(crate) size_unit: f64,
    /// Separate segments by item size: the bound of each group is this multiple of the last one's;
    /// 0 for one group. The group whose evicted items are coldest, per byte, gives up a segment.
    pub(crate) group_growth: f64,
    /// A store that has reclaimed this many segments evicts whole ones from then on.
    pub(crate) patience: u32,
}

#[derive(Clone, Copy)]
struct Item {
    key: u32,
    value_bytes: u32,
    deadline: u32,
    /// Number of the request that last asked for it.
    last_hit: u32,
    count: u8,
    /// The item is no longer in the table.
    dead: bool,
}

impl Item {
    fn bytes(&self) -> u32 {
        (HEADER_BYTES + KEY_BYTES + self.value_bytes).next_multiple_of(8)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Sealed,
}

struct Segment {
    items: Vec<Item>,
    used: u32,
    live: u32,
    earliest: u32,
    queue: usize,
    class: usize,
    state: State,
    older: u32,
    newer: u32,
}

/// Size bound of the first group, and the largest of the last but one.
const SMALLEST_GROUP: f64 = 128.0;
const LARGEST_GROUP: u32 = 8192;
/// Number of evicted items over which coldness is smoothed.
const SMOOTHING: f64 = 1024.0;

impl Group {
    fn up_to(most_bytes: u32) -> Self {
        Self {
            most_bytes,
            coldness: 0.0,
            evicted_at: 0,
            mean_bytes: 0.0,
        }
    }
}

/// Sealed segments from oldest to newest, including merge targets.
struct Queue {
    oldest: u32,
    newest: u32,
    hand: u32,
    /// By class of time to live: the segment that merges fill, already in its place.
    target: Vec<u32>,
    /// By thread and class: the segment that stores fill, not yet in the order.
    open: Vec<u32>,
    segments: u64,
    items: u64,
}

/// Items of similar size: a small (or only) queue and a main queue.
struct Group {
    /// Size of the largest item.
    most_bytes: u32,
    /// Smoothed: how long before their eviction the evicted items had last been requested, times
    /// their bytes.
    coldness: f64,
    evicted_at: u32,
    mean_bytes: f64,
}

pub(crate) struct Segments {
    groups: Vec<Group>,
    options: Options,
    limit: u64,
    segments: Vec<Segment>,
    free: Vec<u32>,
    in_use: u64,
    items: u64,
    index: Vec<(u32, u32)>,
    queues: Vec<Queue>,
    ghost: Ghost,
    rng: u64,
    /// Bytes of all items in the table.
    live_bytes: u64,
    work: Work,
}

impl Segments {
    pub(crate) fn new(options: Options, limit: u64, key_bound: usize) -> Self {
        let classes = TTL_CLASSES.len() + 1;
        let queue = || Queue {
            oldest: NONE,
            newest: NONE,
            hand: NONE,
            target: vec![NONE; classes],
            open: vec![NONE; classes * options.threads as usize],
            segments: 0,
            items: 0,
        };
        let ghosts = match options.policy {
            Policy::S3 => key_bound,
            _ => 0,
        };
        let mut groups = Vec::new();
        let (growth, mut most) = (options.group_growth, SMALLEST_GROUP);
        while growth > 1.0 && most < f64::from(options.segment_bytes.min(LARGEST_GROUP)) {
            groups.push(Group::up_to(most as u32));
            most *= growth;
        }
        groups.push(Group::up_to(u32::MAX));
        let queues = (0..2 * groups.len()).map(|_| queue()).collect();
        Self {
            groups,
            options,
            limit,
            segments: Vec::new(),
            free: Vec::new(),
            in_use: 0,
            items: 0,
            index: vec![(NONE, 0); key_bound],
            queues,
            ghost: Ghost::new(ghosts),
            rng: 1,
            live_bytes: 0,
            work: Work::default(),
        }
    }

    fn allowed(&self) -> u64 {
        let mut tables = self.items * TABLE_BYTES;
        if self.has_ghost() {
            tables += self.ghost_room() * GHOST_BYTES;
        }
        // One segment is kept free so that there is room to copy to.
        (self.limit.saturating_sub(tables) / u64::from(self.options.segment_bytes)).max(4) - 1
    }

    fn has_ghost(&self) -> bool {
        self.options.policy == Policy::S3
    }

    fn ghost_room(&self) -> u64 {
        let main: u64 = self.queues.iter().skip(1).step_by(2).map(|q| q.items).sum();
        (main as f64 * self.options.ghost_share) as u64
    }

    fn group(&self, bytes: u32) -> usize {
        self.groups.partition_point(|g| g.most_bytes < bytes)
    }

    /// The group from which to take a segment: the one whose evicted items are coldest per byte.
    fn coldest_group(&self, now: Now) -> usize {
        let full = |&g: &usize| {
            let queues = &self.queues[2 * g..2 * g + 2];
            queues.iter().any(|q| q.oldest != NONE)
        };
        let coldness = |g: usize| {
            let group = &self.groups[g];
            let idle = f64::from(now.request - group.evicted_at);
            group.coldness.max(idle * group.mean_bytes)
        };
        (0..self.groups.len())
            .filter(full)
            .max_by(|&a, &b| coldness(a).total_cmp(&coldness(b)))
            .unwrap_or(0)
    }

    /// Records the eviction of an item.
    fn note_evicted(&mut self, queue: usize, item: &Item, now: Now) {
        let group = &mut self.groups[queue / 2];
        let bytes = f64::from(item.bytes());
        let cold = f64::from(now.request - item.last_hit) * bytes;
        group.coldness += (cold - group.coldness) / SMOOTHING;
        group.mean_bytes += (bytes - group.mean_bytes) / SMOOTHING;
        group.evicted_at = now.request;
    }

    fn class(&self, ttl_s: u16) -> usize {
        if !self.options.ttl_classes {
            return 0;
        }
        let above = |&&end: &&u16| ttl_s > end;
        TTL_CLASSES.iter().take_while(above).count()
    }

    // ----- items

    fn unlink(&mut self, at: (u32, u32)) {
        let segment = &mut self.segments[at.0 as usize];
        let item = &mut segment.items[at.1 as usize];
        item.dead = true;
        segment.live -= item.bytes();
        self.live_bytes -= u64::from(item.bytes());
        self.queues[segment.queue].items -= 1;
        self.items -= 1;
        self.index[item.key as usize] = (NONE, 0);
    }

    /// Appends to a segment that has room.
    fn append(&mut self, to: u32, item: Item) {
        let segment = &mut self.segments[to as usize];
        debug_assert!(segment.used + item.bytes() <= self.options.segment_bytes);
        self.index[item.key as usize] = (to, segment.items.len() as u32);
        segment.items.push(item);
        segment.used += item.bytes();
        segment.live += item.bytes();
        self.live_bytes += u64::from(item.bytes());
        if item.deadline != 0 {
            segment.earliest = segment.earliest.min(item.deadline);
        }
        self.queues[segment.queue].items += 1;
        self.items += 1;
    }

    fn has_room(&self, segment: u32, bytes: u32) -> bool {
        segment != NONE
            && self.segments[segment as usize].used + bytes <= self.options.segment_bytes
    }

    // ----- segments

    /// Takes a fresh segment; the caller has checked the limit.
    fn take(&mut self, queue: usize, class: usize) -> u32 {
        self.in_use += 1;
        let bytes = self.in_use * u64::from(self.options.segment_bytes);
        self.work.peak_bytes = self.work.peak_bytes.max(bytes);
        self.queues[queue].segments += 1;
        let fresh = Segment {
            items: Vec::new(),
            used: 0,
            live: 0,
            earliest: u32::MAX,
            queue,
            class,
            state: State::Open,
            older: NONE,
            newer: NONE,
        };
        match self.free.pop() {
            Some(id) => {
                self.segments[id as usize] = fresh;
                id
            }
            None => {
                self.segments.push(fresh);
                self.segments.len() as u32 - 1
            }
        }
    }

    /// Inserts `id` into the order, just older than `before`; `NONE` is the newest end.
    fn seal(&mut self, id: u32, before: u32) {
        let queue = self.segments[id as usize].queue;
        let older = match before {
            NONE => self.queues[queue].newest,
            before => self.segments[before as usize].older,
        };
        let segment = &mut self.segments[id as usize];
        segment.state = State::Sealed;
        (segment.older, segment.newer) = (older, before);
        match older {
            NONE => self.queues[queue].oldest = id,
            older => self.segments[older as usize].newer = id,
        }
        match before {
            NONE => self.queues[queue].newest = id,
            before => self.segments[before as usize].older = id,
        }
    }

    /// Takes a sealed segment without live items out of the order and frees it.
    fn release(&mut self, id: u32) {
        let segment = &mut self.segments[id as usize];
        debug_assert!(segment.live == 0 && segment.state == State::Sealed);
        segment.state = State::Free;
        segment.items = Vec::new();
        let (older, newer, queue, class) =
            (segment.older, segment.newer, segment.queue, segment.class);
        match older {
            NONE => self.queues[queue].oldest = newer,
            older => self.segments[older as usize].newer = newer,
        }
        match newer {
            NONE => self.queues[queue].newest = older,
            newer => self.segments[newer as usize].older = older,
        }
        let queue = &mut self.queues[queue];
        if queue.hand == id {
            queue.hand = newer;
        }
        if queue.target[class] == id {
            queue.target[class] = NONE;
        }
        queue.segments -= 1;
        self.in_use -= 1;
        self.free.push(id);
    }

    /// Unlinks and returns the live items of `id`; drops expired ones.
    fn drain(&mut self, id: u32, now: Now) -> Vec<Item> {
        let items = std::mem::take(&mut self.segments[id as usize].items);
        let (mut kept, queue) = (Vec::new(), self.segments[id as usize].queue);
        for item in items {
            if item.dead {
                continue;
            }
            self.segments[id as usize].live -= item.bytes();
            self.live_bytes -= u64::from(item.bytes());
            self.queues[queue].items -= 1;
            self.items -= 1;
            self.index[item.key as usize] = (NONE, 0);
            if !expired(item.deadline, now) {
                kept.push(item);
            }
        }
        // A drained merge target is no longer a target.
        let class = self.segments[id as usize].class;
        if self.queues[queue].target[class] == id {
            self.queues[queue].target[class] = NONE;
        }
        kept
    }

    /// Copies an item to the merge target of its class; a new target takes the place of `victim`.
    fn keep_in_place(&mut self, item: Item, victim: u32) {
        let (queue, class) = {
            let victim = &self.segments[victim as usize];
            (victim.queue, victim.class)
        };
        let mut target = self.queues[queue].target[class];
        if !self.has_room(target, item.bytes()) {
            target = self.take(queue, class);
            self.seal(target, victim);
            self.queues[queue].target[class] = target;
        }
        self.append(target, item);
        self.work.copied_bytes += u64::from(item.bytes());
    }

    /// Copies an item to the new end of a queue.
    fn keep_at_new_end(&mut self, item: Item, queue: usize, class: usize) {
        let to = self.open_segment(queue, class, 0, item.bytes());
        self.append(to, item);
        self.work.copied_bytes += u64::from(item.bytes());
    }

    /// The open segment with room for `bytes`; opens one if necessary.
    fn open_segment(&mut self, queue: usize, class: usize, thread: usize, bytes: u32) -> u32 {
        let slot = thread * (TTL_CLASSES.len() + 1) + class;
        let open = self.queues[queue].open[slot];
        if self.has_room(open, bytes) {
            return open;
        }
        if open != NONE {
            self.seal(open, NONE);
        }
        let open = self.take(queue, class);
        self.queues[queue].open[slot] = open;
        open
    }

    // ----- reclaiming

    fn make_room(&mut self, now: Now) {
        let mut reclaimed = 0;
        while self.in_use >= self.allowed() {
            let hasty = reclaimed >= self.options.patience;
            if !hasty && self.options.clean_below > 0.0 && self.clean(now) {
                reclaimed += 1;
                continue;
            }
            if !self.evict(now, hasty) {
                break;
            }
            reclaimed += 1;
        }
        self.work.longest_reclaim = self.work.longest_reclaim.max(reclaimed);
    }

    /// Compacts the segment with the fewest live bytes, if they are few enough.
    fn clean(&mut self, now: Now) -> bool {
        let sealed = self.segments.iter().enumerate();
        let best = sealed
            .filter(|(id, s)| {
                s.state == State::Sealed && self.queues[s.queue].target[s.class] != *id as u32
            })
            .min_by_key(|(_, s)| s.live);
        let Some((id, segment)) = best else {
            return false;
        };
        let bound = self.options.clean_below * f64::from(self.options.segment_bytes);
        if f64::from(segment.live) >= bound {
            return false;
        }
        let id = id as u32;
        for item in self.drain(id, now) {
            self.keep_in_place(item, id);
        }
        self.release(id);
        true
    }

    /// Frees one segment; may fill another with the items that are kept.
    fn evict(&mut self, now: Now, hasty: bool) -> bool {
        let queue = match self.groups.len() {
            1 => 0,
            _ => 2 * self.coldest_group(now),
        };
        match self.options.policy {
            Policy::Fifo => self.evict_whole(self.queues[queue].oldest, now),
            Policy::Random => {
                let id = self.random_sealed();
                self.evict_whole(id, now)
            }
            Policy::Sieve => self.evict_sieve(queue, now, hasty),
            Policy::Merge => self.evict_merge(queue, now),
            Policy::Clock => self.evict_main(queue, now, hasty),
            Policy::S3 => self.evict_s3(queue, now, hasty),
        }
    }

    fn evict_whole(&mut self, id: u32, now: Now) -> bool {
        if id == NONE {
            return false;
        }
        let queue = self.segments[id as usize].queue;
        for item in self.drain(id, now) {
            self.note_evicted(queue, &item, now);
        }
        self.release(id);
        true
    }

    fn random_sealed(&mut self) -> u32 {
        for _ in 0..10_000 {
            self.rng = corewise_measure::draw::mix(self.rng);
            let id = self.rng as usize % self.segments.len();
            if self.segments[id].state == State::Sealed {
                return id as u32;
            }
        }
        self.queues[0].oldest
    }

    fn evict_sieve(&mut self, at: usize, now: Now, hasty: bool) -> bool {
        let queue = &mut self.queues[at];
        let victim = match queue.hand {
            NONE => queue.oldest,
            hand => hand,
        };
        if victim == NONE {
            return false;
        }
        queue.hand = self.segments[victim as usize].newer;
        for mut item in self.drain(victim, now) {
            if item.count > 0 && !hasty {
                item.count = 0;
                self.keep_in_place(item, victim);
            } else {
                self.note_evicted(at, &item, now);
            }
        }
        self.release(victim);
        true
    }

    fn evict_merge(&mut self, queue: usize, now: Now) -> bool {
        let mut at = match self.queues[queue].hand {
            NONE => self.queues[queue].oldest,
            hand => hand,
        };
        if at == NONE {
            return false;
        }
        let (class, mut victims) = (self.segments[at as usize].class, Vec::new());
        while at != NONE && victims.len() < MERGED {
            if self.segments[at as usize].class == class {
                victims.push(at);
            }
            at = self.segments[at as usize].newer;
        }
        self.queues[queue].hand = at;
        let mut items: Vec<Item> = Vec::new();
        for &victim in &victims {
            items.extend(self.drain(victim, now).into_iter().filter(|i| i.count > 0));
        }
        let worth = |i: &Item| f64::from(i.count) / f64::from(i.bytes());
        items.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        let mut left = match victims.len() {
            // There is no other segment to merge with.
            1 => 0,
            _ => self.options.segment_bytes,
        };
        self.queues[queue].target[class] = NONE;
        for mut item in items {
            if item.bytes() > left {
                left = 0;
                self.note_evicted(queue, &item, now);
                continue;
            }
            left -= item.bytes();
            item.count /= 2;
            self.keep_in_place(item, victims[0]);
        }
        victims.into_iter().for_each(|victim| self.release(victim));
        true
    }

    fn evict_s3(&mut self, queue: usize, now: Now, hasty: bool) -> bool {
        let all = match self.groups.len() {
            1 => self.allowed(),
            _ => self.queues[queue].segments + self.queues[queue + 1].segments,
        };
        let small = (all as f64 * self.options.small_share).max(1.0) as u64;
        let [s, m] = [&self.queues[queue], &self.queues[queue + 1]];
        if s.segments > small && s.oldest != NONE || m.oldest == NONE {
            return self.evict_small(queue, now, hasty);
        }
        self.evict_main(queue + 1, now, hasty)
    }

    /// The number of hits beyond the first that an item of this size needs.
    fn surcharge(&self, bytes: u32, mean: u64) -> u8 {
        match self.options.size_unit {
            0.0 => 0,
            unit => (f64::from(bytes) / (unit * mean as f64)).min(255.0) as u8,
        }
    }

    fn mean_bytes(&self) -> u64 {
        (self.live_bytes / self.items.max(1)).max(1)
    }

    /// Whether an item of the small queue moves to the main queue.
    fn promotes(&self, item: &Item, mean: u64) -> bool {
        let surcharge = self.surcharge(item.bytes(), mean);
        item.count >= self.options.promote_at.saturating_add(surcharge)
    }

    /// Whether an item of the main queue stays in it; its count is reduced by the price.
    fn stays(&self, item: &mut Item, mean: u64) -> bool {
        let surcharge = self.surcharge(item.bytes(), mean);
        let stays = item.count > surcharge;
        item.count -= item.count.min(surcharge.saturating_add(1));
        stays
    }

    fn evict_small(&mut self, queue: usize, now: Now, hasty: bool) -> bool {
        let mean = self.mean_bytes();
        let victim = self.queues[queue].oldest;
        if victim == NONE {
            return false;
        }
        let class = self.segments[victim as usize].class;
        for mut item in self.drain(victim, now) {
            if !hasty && self.promotes(&item, mean) {
                item.count = 0;
                self.keep_at_new_end(item, queue + 1, class);
            } else {
                self.note_evicted(queue, &item, now);
                self.ghost.insert(item.key);
            }
        }
        self.release(victim);
        true
    }

    fn evict_main(&mut self, queue: usize, now: Now, hasty: bool) -> bool {
        let mean = self.mean_bytes();
        let victim = self.queues[queue].oldest;
        if victim == NONE {
            return false;
        }
        let class = self.segments[victim as usize].class;
        for mut item in self.drain(victim, now) {
            if !hasty && self.stays(&mut item, mean) {
                self.keep_at_new_end(item, queue, class);
            } else {
                self.note_evicted(queue, &item, now);
            }
        }
        self.release(victim);
        true
    }
}

impl Cache for Segments {
    fn fetch(&mut self, request: &Request, now: Now) -> bool {
        let at = self.index[request.key as usize];
        if at.0 == NONE {
            return false;
        }
        let item = &mut self.segments[at.0 as usize].items[at.1 as usize];
        if expired(item.deadline, now) {
            self.unlink(at);
            return false;
        }
        let most = match self.options.policy {
            Policy::S3 => self.options.max_count,
            Policy::Merge => 255,
            _ => 1,
        };
        item.count = item.count.saturating_add(1).min(most);
        item.last_hit = now.request;
        true
    }

    fn store(&mut self, request: &Request, now: Now) {
        let old = self.index[request.key as usize];
        let mut item = Item {
            key: request.key,
            value_bytes: request.value_bytes,
            deadline: now.deadline(request.ttl_s),
            last_hit: now.request,
            count: 0,
            dead: false,
        };
        let mut queue = 2 * self.group(item.bytes());
        if old.0 != NONE {
            // An item that replaces another inherits its queue and count.
            queue |= self.segments[old.0 as usize].queue & 1;
            item.count = self.segments[old.0 as usize].items[old.1 as usize].count;
            self.unlink(old);
        } else if self.has_ghost() && self.ghost.remove(request.key, self.ghost_room()) {
            queue |= 1;
        }
        let class = self.class(request.ttl_s);
        let thread = (now.request % self.options.threads) as usize;
        let slot = thread * (TTL_CLASSES.len() + 1) + class;
        if !self.has_room(self.queues[queue].open[slot], item.bytes()) {
            self.make_room(now);
        }
        let to = self.open_segment(queue, class, thread, item.bytes());
        self.append(to, item);
        self.work.stores += 1;
        self.work.stored_bytes += u64::from(item.bytes());
    }

    fn tick(&mut self, now: Now) {
        if self.options.sweep_s == 0 {
            return;
        }
        for id in 0..self.segments.len() as u32 {
            let segment = &self.segments[id as usize];
            if segment.state == State::Free || segment.earliest > now.ms {
                continue;
            }
            let mut earliest = u32::MAX;
            for at in 0..segment.items.len() {
                self.work.swept_items += 1;
                let item = self.segments[id as usize].items[at];
                if item.dead || item.deadline == 0 {
                    continue;
                }
                if expired(item.deadline, now) {
                    self.unlink((id, at as u32));
                } else {
                    earliest = earliest.min(item.deadline);
                }
            }
            let segment = &mut self.segments[id as usize];
            segment.earliest = earliest.max(now.ms + 1000 * (self.options.sweep_s - 1));
            if segment.live == 0 && segment.state == State::Sealed {
                self.release(id);
            }
        }
    }

    fn live_bytes(&self, now: Now) -> u64 {
        let items = self.segments.iter().flat_map(|s| &s.items);
        items
            .filter(|item| !item.dead && !expired(item.deadline, now))
            .map(|item| u64::from(KEY_BYTES + item.value_bytes))
            .sum()
    }

    fn work(&self) -> Work {
        self.work
    }
}
