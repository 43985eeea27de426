//! The members of a sorted set: a slab, and a hash table of the indices in it.
//!
//! A member's *id* is its index in the slab. Ids are stable except when the slab is
//! [compacted](Items::compact), which only lowers them and keeps their order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The end of the list of free slots. No slot has this id.
const NONE: u32 = u32::MAX;

/// ```text
/// Used: | score 8 | pointer to the member 8 | its length 8 |      Free: | next 4 | - | null | - |
/// ```
#[derive(Clone, Debug)]
enum ItemSlot {
    Used {
        score: f64,
        member: Box<[u8]>,
    },
    /// The next free slot, or [`NONE`].
    Free {
        next: u32,
    },
}

const _: () = assert!(size_of::<ItemSlot>() == 24 || size_of::<usize>() != 8);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Items {
    slots: Vec<ItemSlot>,
    /// The first free slot, or [`NONE`].
    free: u32,
    ids: HashTable<u32>,
    hasher: RandomState,
    /// The sum of the members' lengths.
    member_bytes: usize,
}

impl Items {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            ids: HashTable::new(),
            hasher: RandomState::default(),
            member_bytes: 0,
        }
    }

    /// The number of members.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The number of slots, free ones included. All ids are lower.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The bytes that were requested from the allocator.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<ItemSlot>()
            + self.ids.allocation_size()
            + self.member_bytes
    }

    /// The id of a member.
    #[inline]
    pub(super) fn find(&self, member: &[u8]) -> Option<u32> {
        self.locate(member).ok()
    }

    /// The id of a member, or the hash under which to [insert](Self::insert) it.
    #[inline]
    pub(super) fn locate(&self, member: &[u8]) -> Result<u32, u64> {
        let hash = self.hasher.hash_one(member);
        let is_member = |&id: &u32| self.member(id) == member;
        self.ids.find(hash, is_member).copied().ok_or(hash)
    }

    /// The member and score with this id, if there is one.
    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<(&[u8], f64)> {
        match self.slots.get(id as usize)? {
            ItemSlot::Used { score, member } => Some((member, *score)),
            ItemSlot::Free { .. } => None,
        }
    }

    /// The member and score with this id, which must be in use.
    #[inline]
    pub(super) fn item(&self, id: u32) -> (&[u8], f64) {
        self.get(id).expect("the id is in use")
    }

    #[inline]
    pub(super) fn member(&self, id: u32) -> &[u8] {
        self.item(id).0
    }

    #[inline]
    pub(super) fn set_score(&mut self, id: u32, new: f64) {
        if let ItemSlot::Used { score, .. } = &mut self.slots[id as usize] {
            *score = new;
        }
    }

    /// Adds a member that is absent, with the hash from [`locate`](Self::locate).
    pub(super) fn insert(&mut self, member: &[u8], score: f64, hash: u64) -> u32 {
        let member: Box<[u8]> = member.into();
        self.member_bytes += member.len();
        let slot = ItemSlot::Used { score, member };
        let id = self.free;
        let id = match self.slots.get_mut(id as usize) {
            Some(place) => {
                if let ItemSlot::Free { next } = std::mem::replace(place, slot) {
                    self.free = next;
                }
                id
            }
            None => {
                grow_by_an_eighth(&mut self.slots);
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("at most MAX_MEMBERS slots")
            }
        };
        let Self {
            slots, ids, hasher, ..
        } = self;
        let rehash = |&id: &u32| match &slots[id as usize] {
            ItemSlot::Used { member, .. } => hasher.hash_one(&member[..]),
            ItemSlot::Free { .. } => unreachable!("the table has ids in use only"),
        };
        ids.insert_unique(hash, id, rehash);
        id
    }

    /// Removes the member with this id, which must be in use.
    pub(super) fn remove(&mut self, id: u32) -> (Box<[u8]>, f64) {
        let hash = self.hasher.hash_one(self.member(id));
        if let Ok(entry) = self.ids.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        let free = ItemSlot::Free { next: self.free };
        match std::mem::replace(&mut self.slots[id as usize], free) {
            ItemSlot::Used { score, member } => {
                self.free = id;
                self.member_bytes -= member.len();
                (member, score)
            }
            ItemSlot::Free { .. } => unreachable!("the caller's id is in use"),
        }
    }

    /// Removes the free slots, and shrinks the allocations. Returns the new id for each old one;
    /// a new id is at most the old one, and their order is the same.
    pub(super) fn compact(&mut self) -> Vec<u32> {
        let mut new_ids = Vec::with_capacity(self.slots.len());
        let mut used = Vec::with_capacity(self.len());
        for slot in std::mem::take(&mut self.slots) {
            new_ids.push(used.len() as u32);
            if matches!(slot, ItemSlot::Used { .. }) {
                used.push(slot);
            }
        }
        for id in &mut self.ids {
            *id = new_ids[*id as usize];
        }
        self.slots = used;
        self.free = NONE;
        let Self {
            slots, ids, hasher, ..
        } = self;
        ids.shrink_to_fit(|&id| match &slots[id as usize] {
            ItemSlot::Used { member, .. } => hasher.hash_one(&member[..]),
            ItemSlot::Free { .. } => unreachable!("the table has ids in use only"),
        });
        new_ids
    }

    /// Panics unless the table, the free list and the slab agree.
    pub(super) fn assert_valid(&self) {
        let mut used = 0;
        for id in 0..self.slots.len() as u32 {
            if let Some((member, score)) = self.get(id) {
                assert!(!score.is_nan(), "a score is NaN");
                assert_eq!(self.find(member), Some(id), "a member has another id");
                used += 1;
            }
        }
        assert_eq!(
            used,
            self.ids.len(),
            "the table has another number of members"
        );
        let (mut free, mut next) = (0, self.free);
        while next != NONE {
            match self.slots[next as usize] {
                ItemSlot::Free { next: following } => next = following,
                ItemSlot::Used { .. } => panic!("a slot in use is in the free list"),
            }
            free += 1;
            assert!(free <= self.slots.len(), "the free list has a cycle");
        }
        assert_eq!(used + free, self.slots.len(), "a slot is lost");
        let lengths = self.slots.iter().map(|slot| match slot {
            ItemSlot::Used { member, .. } => member.len(),
            ItemSlot::Free { .. } => 0,
        });
        assert_eq!(lengths.sum::<usize>(), self.member_bytes);
    }
}

/// Makes room for another element. `Vec` alone would double its capacity; in a large set that is
/// half of the memory.
pub(super) fn grow_by_an_eighth<T>(elements: &mut Vec<T>) {
    if elements.len() == elements.capacity() {
        elements.reserve_exact((elements.len() / 8).max(1));
    }
}
