//! Insertion, removal and counting.
//!
//! # An insertion
//!
//! 5. If a bucket of the item looks not full: lock it, place the fingerprint if there is room.
//! 6. Otherwise search for a path ([`KickPath::find`]), without locks.
//! 7. If there is none: lock both buckets, and place, or refuse.
//! 8. Make the moves from the end of the path, each under the locks of its two buckets, after a
//!    check that the fingerprint is still there and the room too. The new fingerprint replaces the
//!    last one that moves under the same locks, so no other thread takes the slot.
//! 9. If a check fails, another thread made progress: from 5. After [`STALE_PATHS`] give up.
//!
//! Search, check and move are separate functions, and all that runs under locks is a closure of
//! [`StripedVersions::exclusively`](crate::stripes::StripedVersions::exclusively) that allocates
//! nothing: an elided lock can take its place (thesis, algorithms 5.9 and 5.10).

use corewise_atomic::mutant;

use crate::filter::InsertError;
use crate::pairing::ItemClass;
use crate::path::{Displacement, KickPath};
use crate::stripes::HeldStripes;
use crate::table::{FingerprintTable, Located};

/// Outdated paths after which an insertion gives up.
const STALE_PATHS: u32 = 32;
/// Rounds after which a removal that finds its copy gone locks both buckets.
const REMOVE_ROUNDS: u32 = 8;

/// A move whose buckets have changed since the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StalePath;

impl FingerprintTable {
    pub(crate) fn insert(&self, class: &ItemClass, limit: usize) -> Result<(), InsertError> {
        if self.has_placed(class) {
            return Ok(());
        }
        self.insert_by_moving(class, limit)
    }

    /// Places the item if one of its buckets has room; under the stress build only after a search.
    #[inline(always)]
    fn has_placed(&self, class: &ItemClass) -> bool {
        !cfg!(corewise_stress) && self.place_in_room(class)
    }

    /// A call, because its path takes a large stack frame.
    #[inline(never)]
    fn insert_by_moving(&self, class: &ItemClass, limit: usize) -> Result<(), InsertError> {
        for _ in 0..=STALE_PATHS {
            let Some(path) = KickPath::find(self, class, limit) else {
                return self.insert_last(class);
            };
            let has_moved = self.displace(&path, class.fingerprint);
            if has_moved == Ok(true) || self.has_placed(class) {
                return Ok(());
            }
        }
        Err(InsertError::Full)
    }

    /// Places the item if there is room by now, and otherwise tells why there is none.
    fn insert_last(&self, class: &ItemClass) -> Result<(), InsertError> {
        let buckets = [class.first, class.second];
        self.stripes.exclusively(buckets, |held| {
            if self.place_in_either(held, class) {
                Ok(())
            } else if buckets
                .into_iter()
                .all(|b| self.has_no_other(b, class.fingerprint))
            {
                Err(InsertError::TooManyCopies)
            } else {
                Err(InsertError::Full)
            }
        })
    }

    fn place_in_either(&self, held: &mut HeldStripes<'_>, class: &ItemClass) -> bool {
        self.place(held, class.first, class.fingerprint)
            || self.place(held, class.second, class.fingerprint)
    }

    /// Whether no slot of the bucket holds another fingerprint.
    fn has_no_other(&self, bucket: u32, fingerprint: u32) -> bool {
        let slots = self.fingerprints(bucket);
        slots.iter().all(|&slot| slot == 0 || slot == fingerprint)
    }

    fn copies_in_both(&self, class: &ItemClass) -> usize {
        let copies = |bucket| self.copies(bucket, class.fingerprint) as usize;
        copies(class.first) + copies(class.second)
    }

    /// Makes the moves of a path; the fingerprint, or an empty slot if it is 0, takes the place of
    /// the last. Returns whether there were moves.
    fn displace(&self, path: &KickPath, fingerprint: u32) -> Result<bool, StalePath> {
        if mutant!("kicks_forward") {
            return self.displace_forward(path, fingerprint);
        }
        let mut has_moved = false;
        for step in path.displacements() {
            let replacement = if step.is_last { fingerprint } else { 0 };
            self.move_one(&step, replacement)?;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// The mistake of algorithm 5.5: each fingerprint leaves its bucket before it has a new slot.
    #[cold]
    fn displace_forward(&self, path: &KickPath, fingerprint: u32) -> Result<bool, StalePath> {
        let mut steps: Vec<Displacement> = path.displacements().collect();
        steps.reverse();
        let mut carried = fingerprint;
        for step in &steps {
            self.stripes.exclusively([step.from; 2], |held| {
                if !self.holds(step.from, step.fingerprint) {
                    return Err(StalePath);
                }
                self.overwrite(held, step.from, step.fingerprint, carried);
                Ok(())
            })?;
            carried = step.fingerprint;
        }
        if let Some(end) = steps.last() {
            self.stripes
                .exclusively([end.to; 2], |held| self.place(held, end.to, carried));
        }
        Ok(!steps.is_empty())
    }

    /// Moves a fingerprint to its other bucket.
    fn move_one(&self, step: &Displacement, replacement: u32) -> Result<(), StalePath> {
        self.stripes.exclusively([step.from, step.to], |held| {
            if !self.can_move(step) {
                return Err(StalePath);
            }
            self.complete_move(held, step, replacement);
            Ok(())
        })
    }

    /// Moves a fingerprint that the model knows to be in `from`.
    #[cfg(test)]
    pub(crate) fn move_for_models(&self, fingerprint: u32, from: u32, to: u32) {
        let step = Displacement {
            fingerprint,
            from,
            to,
            is_last: false,
        };
        self.move_one(&step, 0).expect("the model knows better");
    }

    /// Whether the buckets still allow the move. Any copy will do: equal fingerprints in a bucket
    /// belong to the same class.
    fn can_move(&self, step: &Displacement) -> bool {
        mutant!("stale_path") || self.holds(step.from, step.fingerprint) && self.holds(step.to, 0)
    }

    #[inline(always)]
    fn complete_move(&self, held: &mut HeldStripes<'_>, step: &Displacement, replacement: u32) {
        let clears_first = mutant!("clears_first");
        if !clears_first {
            self.place(held, step.to, step.fingerprint);
        }
        if replacement == 0 {
            self.clear(held, step.from, step.fingerprint);
        } else {
            self.overwrite(held, step.from, step.fingerprint, replacement);
        }
        if clears_first {
            self.place(held, step.to, step.fingerprint);
        }
    }

    /// Inserts the item unless it is present; returns whether it was absent.
    pub(crate) fn insert_unique(
        &self,
        class: &ItemClass,
        limit: usize,
    ) -> Result<bool, InsertError> {
        // All copies of a class are in its two buckets, and both locks keep them there.
        let buckets = if mutant!("one_lock") {
            [class.first; 2]
        } else {
            [class.first, class.second]
        };
        for _ in 0..=STALE_PATHS {
            let is_placed = self.stripes.exclusively(buckets, |held| {
                if self.copies_in_both(class) > 0 {
                    return Some(false);
                }
                let is_placed = if mutant!("one_lock") {
                    self.place(held, class.first, class.fingerprint)
                } else {
                    self.place_in_either(held, class)
                };
                is_placed.then_some(true)
            });
            if let Some(is_absent) = is_placed {
                return Ok(is_absent);
            }
            let path = KickPath::find(self, class, limit).ok_or(InsertError::Full)?;
            // Stale or not, the next round looks again.
            let _ = self.displace(&path, 0);
        }
        Err(InsertError::Full)
    }

    /// Removes a copy of the item; returns whether there was one.
    pub(crate) fn remove(&self, class: &ItemClass) -> bool {
        if mutant!("remove_one_by_one") {
            return self.take(class.first, class) || self.take(class.second, class);
        }
        self.take_at_once(class) || self.remove_moved(class)
    }

    /// Removes a copy that other threads move, or finds that there is none.
    #[inline(never)]
    fn remove_moved(&self, class: &ItemClass) -> bool {
        for _ in 0..REMOVE_ROUNDS {
            match self.locate(class) {
                Located::Nowhere => return false,
                Located::In(bucket) if self.take(bucket, class) => return true,
                Located::In(_) => {}
                Located::Unknown => break,
            }
        }
        self.stripes
            .exclusively([class.first, class.second], |held| {
                let buckets = [class.first, class.second];
                let found = buckets
                    .into_iter()
                    .find(|&b| self.holds(b, class.fingerprint));
                found
                    .map(|bucket| self.clear(held, bucket, class.fingerprint))
                    .is_some()
            })
    }

    /// The number of copies of the item.
    pub(crate) fn count(&self, class: &ItemClass) -> usize {
        let buckets = [class.first, class.second];
        self.stripes
            .exclusively(buckets, |_| self.copies_in_both(class))
    }
}
