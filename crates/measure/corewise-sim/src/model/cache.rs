//! Which lines a cache holds, or which pages a TLB. Their state is in the directory.

/// A set-associative cache that replaces the least recently used line of a set.
pub(super) struct LineSets {
    ways: usize,
    sets: usize,
    /// Each set from the most to the least recently used; 0 is free, others are one more than a
    /// number.
    tags: Box<[u32]>,
    is_hashed: bool,
}

impl LineSets {
    /// `entries` are rounded down to whole sets. With `is_hashed`, a set is chosen by a hash, as in
    /// a shared cache of slices, else by the lowest bits of the number.
    pub(super) fn new(entries: usize, ways: usize, is_hashed: bool) -> Self {
        let ways = ways.clamp(1, entries.max(1));
        let sets = (entries / ways).max(1);
        Self {
            ways,
            sets,
            tags: vec![0; sets * ways].into(),
            is_hashed,
        }
    }

    #[inline]
    fn set_of(&mut self, number: u32) -> &mut [u32] {
        let set = if self.is_hashed {
            let mixed = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            ((mixed * self.sets as u64) >> 32) as usize
        } else {
            number as usize % self.sets
        };
        let first = set * self.ways;
        &mut self.tags[first..first + self.ways]
    }

    /// Whether the number is there; if so, it was used last now.
    #[inline]
    pub(super) fn is_hit(&mut self, number: u32) -> bool {
        let set = self.set_of(number);
        match set.iter().position(|&tag| tag == number + 1) {
            Some(place) => {
                set.copy_within(..place, 1);
                set[0] = number + 1;
                true
            }
            None => false,
        }
    }

    /// Adds a number that is not there; returns the one that has to go.
    #[inline]
    pub(super) fn insert(&mut self, number: u32) -> Option<u32> {
        let set = self.set_of(number);
        // A free way is behind those in use.
        let last = set[set.len() - 1];
        set.copy_within(..set.len() - 1, 1);
        set[0] = number + 1;
        last.checked_sub(1)
    }

    /// Takes a number out, if it is there.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        let set = self.set_of(number);
        if let Some(place) = set.iter().position(|&tag| tag == number + 1) {
            let last = set.len() - 1;
            set.copy_within(place + 1.., place);
            set[last] = 0;
        }
    }

    #[cfg(test)]
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.tags.iter().filter_map(|tag| tag.checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list for each set.
    #[test]
    fn a_set_keeps_what_was_used_last() {
        let (sets, ways) = (4, 3);
        let mut cache = LineSets::new(sets * ways, ways, false);
        let mut lists = vec![Vec::new(); sets];
        let mut random = 1u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let number = (random >> 40) as u32 % 40;
            let list: &mut Vec<u32> = &mut lists[number as usize % sets];
            let place = list.iter().position(|&n| n == number);
            if random >> 33 & 7 == 0 {
                cache.remove(number);
                place.map(|place| list.remove(place));
                continue;
            }
            assert_eq!(cache.is_hit(number), place.is_some());
            match place {
                Some(place) => list[..=place].rotate_right(1),
                None => {
                    list.insert(0, number);
                    let gone = if list.len() > ways { list.pop() } else { None };
                    assert_eq!(cache.insert(number), gone);
                }
            }
        }
    }

    #[test]
    fn a_hash_uses_all_sets_alike() {
        let mut cache = LineSets::new(1_000, 10, true);
        let gone = (0..800).filter_map(|n| cache.insert(n * 64)).count();
        // In sets by the lowest bits they would go to four places.
        assert!(gone < 160, "{gone}");
    }
}
