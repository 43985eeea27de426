//! Items in chunks of size classes, with a mover of pages between the classes.
//!
//! Pages are counted, not laid out: a page that leaves a class costs one eviction for each item
//! that no longer fits the class, and the rest of the page's items count as copied.

use crate::ghost::Ghost;
use crate::replay::{Cache, KEY_BYTES, Now, Request, Work, expired};

const NONE: u32 = u32::MAX;
/// A page moves to a class that is less cold than this share of the coldest.
const MOVE_BELOW: f64 = 0.8;
const TABLE_BYTES: u64 = 16;
const GHOST_BYTES: u64 = 4;
/// Number of evictions over which ages are smoothed.
const SMOOTHING: f64 = 64.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Fifo,
    Random,
    Lru,
    Clock,
    Sieve,
    S3,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) policy: Policy,
    /// Bytes that an item takes beyond key and value, links of the policy included.
    pub(crate) header_bytes: u32,
    pub(crate) growth: f64,
    pub(crate) page_bytes: u32,
    /// A class gets its first page even if the limit is reached, as in memcached.
    pub(crate) first_page_free: bool,
    pub(crate) small_share: f64,
    pub(crate) promote_at: u8,
    /// Pages move to where they bring the most hits, not to where the oldest items are.
    pub(crate) dense: bool,
}

#[derive(Clone, Copy)]
struct Item {
    key: u32,
    value_bytes: u32,
    deadline: u32,
    last_hit: u32,
    prev: u32,
    next: u32,
    /// Distinguishes an item from a former one in its slot.
    generation: u32,
    class: u8,
    /// 0 is the only or the small queue, 1 the main queue.
    queue: u8,
    count: u8,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    items: u64,
}

struct Class {
    chunk_bytes: u32,
    pages: u64,
    per_page: u64,
    lists: [List; 2],
    hand: u32,
    /// For random eviction: all items. An item's position is in `prev`.
    members: Vec<u32>,
    since_move: u64,
    /// Smoothed: how long before their eviction the evicted items had last been requested.
    evicted_age: f64,
    evicted_at: u32,
}

impl Class {
    fn items(&self) -> u64 {
        self.lists[0].items + self.lists[1].items
    }
}

pub(crate) struct Classes {
    options: Options,
    limit: u64,
    classes: Vec<Class>,
    items: Vec<Item>,
    free: Vec<u32>,
    index: Vec<u32>,
    ghost: Ghost,
    pages: u64,
    count: u64,
    rng: u64,
    /// Items by the second in which they expire.
    wheel: Vec<Vec<(u32, u32)>>,
    second: usize,
    work: Work,
}

impl Classes {
    pub(crate) fn new(options: Options, limit: u64, key_bound: usize) -> Self {
        let mut classes = Vec::new();
        let mut chunk = 64.0;
        while chunk < 2.0 * f64::from(corewise_measure::trace::MAX_VALUE_BYTES) {
            let chunk_bytes = (chunk as u32).next_multiple_of(8);
            let empty = List {
                head: NONE,
                tail: NONE,
                items: 0,
            };
            classes.push(Class {
                chunk_bytes,
                pages: 0,
                per_page: u64::from(options.page_bytes / chunk_bytes).max(1),
                lists: [empty; 2],
                hand: NONE,
                members: Vec::new(),
                since_move: 0,
                evicted_age: 0.0,
                evicted_at: 0,
            });
            chunk *= options.growth;
        }
        let ghosts = if options.policy == Policy::S3 {
            key_bound
        } else {
            0
        };
        Self {
            options,
            limit,
            classes,
            items: Vec::new(),
            free: Vec::new(),
            index: vec![NONE; key_bound],
            ghost: Ghost::new(ghosts),
            pages: 0,
            count: 0,
            rng: 1,
            wheel: Vec::new(),
            second: 0,
            work: Work::default(),
        }
    }

    fn allowed_pages(&self) -> u64 {
        let each = match self.options.policy {
            Policy::S3 => TABLE_BYTES + GHOST_BYTES,
            _ => TABLE_BYTES,
        };
        (self.limit.saturating_sub(self.count * each) / u64::from(self.options.page_bytes)).max(2)
    }

    fn class_of(&self, request: &Request) -> usize {
        let bytes = self.options.header_bytes + request.bytes();
        let found = self.classes.partition_point(|c| c.chunk_bytes < bytes);
        found.min(self.classes.len() - 1)
    }

    // ----- lists

    fn push(&mut self, id: u32, queue: usize) {
        let class = &mut self.classes[self.items[id as usize].class as usize];
        class.lists[queue].items += 1;
        self.items[id as usize].queue = queue as u8;
        if self.options.policy == Policy::Random {
            self.items[id as usize].prev = class.members.len() as u32;
            class.members.push(id);
            return;
        }
        let list = &mut class.lists[queue];
        let old = std::mem::replace(&mut list.head, id);
        (self.items[id as usize].prev, self.items[id as usize].next) = (NONE, old);
        match old {
            NONE => list.tail = id,
            old => self.items[old as usize].prev = id,
        }
    }

    fn pull(&mut self, id: u32) {
        let Item {
            prev,
            next,
            class,
            queue,
            ..
        } = self.items[id as usize];
        let class = &mut self.classes[class as usize];
        let list = &mut class.lists[queue as usize];
        list.items -= 1;
        if self.options.policy == Policy::Random {
            class.members.swap_remove(prev as usize);
            if let Some(&moved) = class.members.get(prev as usize) {
                self.items[moved as usize].prev = prev;
            }
            return;
        }
        if class.hand == id {
            class.hand = prev;
        }
        match prev {
            NONE => list.head = next,
            prev => self.items[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.items[next as usize].prev = prev,
        }
    }

    fn remove(&mut self, id: u32) {
        self.pull(id);
        self.index[self.items[id as usize].key as usize] = NONE;
        self.items[id as usize].generation += 1;
        self.free.push(id);
        self.count -= 1;
    }

    // ----- eviction

    fn random_member(&mut self, class: usize) -> u32 {
        self.rng = corewise_measure::draw::mix(self.rng);
        let members = &self.classes[class].members;
        match members.len() {
            0 => NONE,
            n => members[self.rng as usize % n],
        }
    }

    /// The next item of `class` to evict.
    fn victim(&mut self, class: usize) -> u32 {
        match self.options.policy {
            Policy::Fifo | Policy::Lru => self.classes[class].lists[0].tail,
            Policy::Random => self.random_member(class),
            Policy::Clock => self.victim_clock(class, 0),
            Policy::Sieve => self.victim_sieve(class),
            Policy::S3 => self.victim_s3(class),
        }
    }

    fn victim_clock(&mut self, class: usize, queue: usize) -> u32 {
        loop {
            let id = self.classes[class].lists[queue].tail;
            if id == NONE || self.items[id as usize].count == 0 {
                return id;
            }
            self.items[id as usize].count -= 1;
            self.pull(id);
            self.push(id, queue);
        }
    }

    fn victim_sieve(&mut self, class: usize) -> u32 {
        loop {
            let class = &mut self.classes[class];
            if class.hand == NONE {
                class.hand = class.lists[0].tail;
            }
            let id = class.hand;
            if id == NONE || self.items[id as usize].count == 0 {
                return id;
            }
            self.items[id as usize].count = 0;
            class.hand = self.items[id as usize].prev;
        }
    }

    fn victim_s3(&mut self, class: usize) -> u32 {
        loop {
            let [small, main] = self.classes[class].lists;
            let bound = ((small.items + main.items) as f64 * self.options.small_share) as u64;
            if small.items <= bound && main.items > 0 || small.items == 0 {
                return self.victim_clock(class, 1);
            }
            let id = small.tail;
            if self.items[id as usize].count < self.options.promote_at {
                self.ghost.insert(self.items[id as usize].key);
                return id;
            }
            self.items[id as usize].count = 0;
            self.pull(id);
            self.push(id, 1);
        }
    }

    fn evict(&mut self, class: usize, now: Now) -> bool {
        let id = self.victim(class);
        if id == NONE {
            return false;
        }
        let age = f64::from(now.request - self.items[id as usize].last_hit);
        let c = &mut self.classes[class];
        c.evicted_age += (age - c.evicted_age) / SMOOTHING;
        c.evicted_at = now.request;
        self.remove(id);
        true
    }

    // ----- pages

    /// How long ago the evicted items had last been requested, times their size if that counts.
    /// Free pages are infinitely cold. If a class has not evicted for longer than that, the time
    /// since its last eviction counts.
    fn coldness(&self, class: usize, now: Now) -> f64 {
        let c = &self.classes[class];
        if c.items() + c.per_page <= c.pages * c.per_page {
            return f64::INFINITY;
        }
        let tail = c.lists[0].tail;
        let age = match self.options.policy {
            Policy::Lru if tail != NONE => {
                f64::from(now.request - self.items[tail as usize].last_hit)
            }
            _ => c.evicted_age.max(f64::from(now.request - c.evicted_at)),
        };
        if self.options.dense {
            age * f64::from(c.chunk_bytes)
        } else {
            age
        }
    }

    /// The class that needs a page least, and its coldness.
    fn coldest(&self, but: usize, at_least: u64, now: Now) -> Option<(usize, f64)> {
        (0..self.classes.len())
            .filter(|&c| c != but && self.classes[c].pages >= at_least)
            .map(|c| (c, self.coldness(c, now)))
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    fn take_page(&mut self, from: usize, now: Now) {
        self.classes[from].pages -= 1;
        let (room, per_page) = {
            let c = &self.classes[from];
            (c.pages * c.per_page, c.per_page)
        };
        let before = self.classes[from].items();
        while self.classes[from].items() > room && self.evict(from, now) {}
        let evicted = before - self.classes[from].items();
        let moved = per_page
            .saturating_sub(evicted)
            .min(self.classes[from].items());
        self.work.copied_bytes += moved * u64::from(self.classes[from].chunk_bytes);
        self.pages -= 1;
        self.classes[from].since_move = 0;
    }

    /// Frees a chunk of `class`.
    fn make_room(&mut self, class: usize, now: Now) {
        let mut moved = 0;
        while self.classes[class].items()
            >= self.classes[class].pages * self.classes[class].per_page
        {
            let first = self.options.first_page_free && self.classes[class].pages == 0;
            if first || self.pages < self.allowed_pages() {
                self.pages += 1;
                self.classes[class].pages += 1;
                continue;
            }
            let per_page = self.classes[class].per_page;
            let empty = self.classes[class].pages == 0;
            if empty || self.classes[class].since_move >= per_page {
                self.classes[class].since_move = 0;
                let mine = self.coldness(class, now);
                let least = if empty { 1 } else { 2 };
                if let Some((from, theirs)) = self.coldest(class, least, now)
                    && (empty || mine < MOVE_BELOW * theirs)
                {
                    self.take_page(from, now);
                    self.pages += 1;
                    self.classes[class].pages += 1;
                    moved += 1;
                    continue;
                }
            }
            self.classes[class].since_move += 1;
            if !self.evict(class, now) {
                break;
            }
        }
        self.work.peak_bytes = self
            .work
            .peak_bytes
            .max(self.pages * u64::from(self.options.page_bytes));
        // The table has grown into the pages' share.
        while self.pages > self.allowed_pages() {
            let Some((from, _)) = self.coldest(class, 2, now) else {
                break;
            };
            self.take_page(from, now);
        }
        self.work.longest_reclaim = self.work.longest_reclaim.max(moved);
    }
}

impl Cache for Classes {
    fn fetch(&mut self, request: &Request, now: Now) -> bool {
        let id = self.index[request.key as usize];
        if id == NONE {
            return false;
        }
        if expired(self.items[id as usize].deadline, now) {
            self.remove(id);
            return false;
        }
        let item = &mut self.items[id as usize];
        item.last_hit = now.request;
        let most = if self.options.policy == Policy::S3 {
            3
        } else {
            1
        };
        item.count = (item.count + 1).min(most);
        if self.options.policy == Policy::Lru {
            self.pull(id);
            self.push(id, 0);
        }
        true
    }

    fn store(&mut self, request: &Request, now: Now) {
        let old = self.index[request.key as usize];
        let (mut queue, mut count) = (0, 0);
        if old != NONE {
            (queue, count) = (
                self.items[old as usize].queue,
                self.items[old as usize].count,
            );
            self.remove(old);
        } else if self.options.policy == Policy::S3 && self.ghost.remove(request.key, self.count) {
            queue = 1;
        }
        let class = self.class_of(request);
        self.make_room(class, now);
        let mut item = Item {
            key: request.key,
            value_bytes: request.value_bytes,
            deadline: now.deadline(request.ttl_s),
            last_hit: now.request,
            prev: NONE,
            next: NONE,
            generation: 0,
            class: class as u8,
            queue,
            count,
        };
        let id = match self.free.pop() {
            Some(id) => {
                item.generation = self.items[id as usize].generation + 1;
                self.items[id as usize] = item;
                id
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        };
        self.index[request.key as usize] = id;
        self.count += 1;
        self.push(id, queue as usize);
        self.work.stores += 1;
        self.work.stored_bytes += u64::from(self.options.header_bytes + request.bytes());
        if item.deadline != 0 {
            let second = item.deadline as usize / 1000 + 1;
            if self.wheel.len() <= second {
                self.wheel.resize(second + 1, Vec::new());
            }
            self.wheel[second].push((id, item.generation));
        }
    }

    fn tick(&mut self, now: Now) {
        while self.second <= now.ms as usize / 1000 && self.second < self.wheel.len() {
            for (id, generation) in std::mem::take(&mut self.wheel[self.second]) {
                self.work.swept_items += 1;
                let item = &self.items[id as usize];
                if item.generation == generation && expired(item.deadline, now) {
                    self.remove(id);
                }
            }
            self.second += 1;
        }
    }

    fn live_bytes(&self, now: Now) -> u64 {
        let held = self.index.iter().filter(|&&id| id != NONE);
        held.map(|&id| &self.items[id as usize])
            .filter(|item| !expired(item.deadline, now))
            .map(|item| u64::from(KEY_BYTES + item.value_bytes))
            .sum()
    }

    fn work(&self) -> Work {
        self.work
    }
}
