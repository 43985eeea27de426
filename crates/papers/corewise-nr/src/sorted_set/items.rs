//! The members of a sorted set: their records, and an index of the records by member.
//!
//! A record's id changes only when the set [moves](Items::next_to_move) it.

use super::index::HashIndex;
use super::mover::Mover;
use super::records::{Compaction, Records};
use crate::SetMemory;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Items {
    pub(super) records: Records,
    pub(super) index: HashIndex,
}

impl Items {
    pub(super) fn new(seed: u64, memory: &SetMemory) -> Self {
        Self {
            records: Records::new(memory),
            index: HashIndex::new(seed, memory),
        }
    }

    /// The bytes that were requested from the allocator.
    pub(super) fn memory(&self) -> usize {
        self.records.memory() + self.index.memory()
    }

    pub(super) fn move_arrays(&mut self, mover: &mut Mover<'_>) {
        self.records.move_arrays(mover);
        self.index.move_arrays(mover);
    }

    /// The id of a member, or the hash under which to [insert](Self::insert) it.
    #[inline]
    pub(super) fn locate(&self, member: &[u8]) -> Result<u32, u64> {
        let hash = self.index.hash(member);
        let is_member = |id: u32| self.records.member(id) == member;
        self.index.find(hash, is_member).ok_or(hash)
    }

    /// Adds a member that is absent, with the hash from [`locate`](Self::locate). Returns `None` if
    /// there is no room for its record.
    pub(super) fn insert(&mut self, member: &[u8], score: f64, hash: u64) -> Option<u32> {
        let id = self.records.insert(member, score)?;
        self.index.insert(hash, id, &self.records);
        Some(id)
    }

    /// Removes the member with this id.
    pub(super) fn remove(&mut self, id: u32) {
        let hash = self.index.hash(self.records.member(id));
        self.index.remove(hash, id);
        self.records.remove(id);
    }

    /// A step of the [compaction](Records::next_to_move). If a record is to move, copies it, lets
    /// the index name the copy, and returns both ids; the caller [buries](Records::bury) the old
    /// record once nothing else names it.
    pub(super) fn next_to_move(&mut self) -> Compaction<(u32, u32)> {
        let old = match self.records.next_to_move() {
            Compaction::Move(old) => old,
            Compaction::Stepped => return Compaction::Stepped,
            Compaction::Done => return Compaction::Done,
        };
        let Some(new) = self.records.copy(old) else {
            return Compaction::Done;
        };
        let hash = self.index.hash(self.records.member(old));
        self.index.replace(hash, old, new);
        Compaction::Move((old, new))
    }

    /// Panics unless the index and the records agree.
    pub(super) fn assert_valid(&self) {
        assert_eq!(self.records.assert_valid(), self.index.len());
        self.index.assert_valid(&self.records);
        for id in self.index.ids() {
            let (member, score) = self.records.item(id);
            assert!(!score.is_nan(), "a score is NaN");
            let mut found = self.index.candidates(self.index.hash(member));
            assert!(found.any(|found| found == id), "a member has another id");
        }
    }
}
