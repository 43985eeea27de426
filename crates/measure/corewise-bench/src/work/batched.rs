//! Lookups of a stream in batches.

use crate::plan::Plan;
use crate::table::{Kind, MeasuredMap};
use crate::work::{Drive, DriveReport, Loop, Part};

/// The lookups of a stream in batches.
#[derive(Debug)]
pub struct Batched {
    pub(crate) drive: Drive,
    /// Keys of a batch.
    pub(crate) keys: usize,
}

impl Loop for Batched {
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        let size = self.keys;
        self.drive
            .run_chunks::<K, T>(map, plan, part, |worker, chunk| {
                for keys in chunk.keys.chunks(size) {
                    worker.get_many(keys, chunk.shift);
                }
            })
    }
}
