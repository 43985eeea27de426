//! The closed loop with a sample of latencies.

use crate::clock;
use crate::latencies::Latencies;
use crate::plan::{Kept, Plan};
use crate::stream::Chunk;
use crate::table::{Kind, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{Drive, DriveReport, Loop, Part};

/// The operations of a stream, of which one in each chunk is timed.
#[derive(Debug)]
pub struct Timed {
    pub(crate) drive: Drive,
    pub(crate) latencies: Latencies,
}

impl Loop for Timed {
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        debug_assert_ne!(
            plan.kept,
            Kept::Half,
            "no section times operations beside kept keys"
        );
        let mut place = self.drive.times.run_ticks ^ std::ptr::from_ref(self) as u64;
        let latencies = &mut self.latencies;
        self.drive
            .run_chunks::<K, T>(map, plan, part, |worker, chunk| {
                place = place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                timed::<K, T>(worker, chunk, (place >> 58) as usize, latencies);
            })
    }
}

/// Runs the operations of a chunk, with the one at `place` timed.
#[inline(always)]
fn timed<K: Kind, T: MeasuredMap<K>>(
    worker: &mut Worker<'_, K, T>,
    chunk: Chunk<'_>,
    place: usize,
    latencies: &mut Latencies,
) {
    for (at, (&key, &operation)) in chunk.keys.iter().zip(chunk.operations).enumerate() {
        if at != place {
            worker.step::<false>(key, operation, chunk.shift);
        } else {
            let begin = clock::now();
            let outcome = worker.step::<false>(key, operation, chunk.shift);
            latencies.record(outcome, clock::now().wrapping_sub(begin));
        }
    }
}
