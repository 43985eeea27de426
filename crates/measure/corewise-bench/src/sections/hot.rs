//! Remove and reinsert: one hot key for each thread, or random ones.
//!
//! In this section the rate counts pairs of a remove and an insert of the same key.

use std::sync::Arc;
use std::time::Duration;

use corewise_measure::draw::mix;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cell_run::CellRun;
use crate::closed_loop::{self, Slices};
use crate::contender::{CellContext, PhaseError, RunningTable};
use crate::distribution::Distribution;
use crate::error::BenchError;
use crate::plot::style::Looks;
use crate::plot::{Plot, dots, group};
use crate::results::{CellResults, Results};
use crate::section::Section;
use crate::work::hot::{Hot, KeyPosition};
use crate::workload::{Check, Rules, Workload};

#[derive(Debug)]
pub(crate) struct HotSection;

impl Rules for HotSection {
    fn name(&self) -> &'static str {
        "hot"
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        let (distribution, initial) = (workload.distribution, workload.initial);
        vec![
            (
                matches!(distribution, Distribution::Single | Distribution::Uniform),
                format!("distribution: {distribution} (single, uniform)"),
            ),
            (
                initial >= workload.threads as u64,
                format!("initial: {initial} (a key for each thread)"),
            ),
        ]
    }

    fn is_full(&self, _: &Workload) -> bool {
        true
    }

    fn names_distribution(&self) -> bool {
        true
    }
}

impl Section for HotSection {
    /// The loop churns anyway, and must know the stored values.
    fn adapt(&self, workload: &mut Workload) {
        (workload.insert_percent, workload.remove_percent) = (0.0, 0.0);
        workload.churn = 0.0;
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let measured = closed_loop::measure(run, draw_own_keys)?;
        run.write(measured)
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = (self.name(), &*self.preset().title);
        let heading = |cell: &CellResults| {
            let keys = match &*cell.cell.distribution {
                "single" => "one hot key each",
                _ => "random keys",
            };
            format!("{}, {keys}", group::threads(cell.cell.threads))
        };
        dots::by(results, looks, what, &["distribution", "threads"], heading)
    }
}

/// Slices of removing and reinserting.
struct HotSlices {
    /// Each thread's exclusive keys, in random order.
    own_keys: Vec<Arc<[u32]>>,
}

impl Slices for HotSlices {
    /// Each thread's position in its keys.
    type Progress = Vec<KeyPosition>;

    fn begin(&self, seed: u64) -> Vec<KeyPosition> {
        let keys = self.own_keys.iter();
        keys.map(|keys| KeyPosition::new(mix(seed) as usize % keys.len()))
            .collect()
    }

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        places: &mut Vec<KeyPosition>,
    ) -> Result<(), PhaseError> {
        let (own_keys, from) = (self.own_keys.clone(), places.clone());
        let stay = context.workload.distribution == Distribution::Single;
        let (reports, jobs) = context.slice(table, move |times, part| Hot {
            keys: own_keys[part.thread].clone(),
            place: from[part.thread],
            stay,
            times: times.clone(),
        })?;
        *places = jobs.iter().map(|job| job.place).collect();
        table.add_slice(&reports);
        Ok(())
    }
}

/// Draws each thread's part of the keys, in random order.
fn draw_own_keys(context: &CellContext<'_>, seed: u64) -> Result<HotSlices, BenchError> {
    let (plan, threads) = (context.plan, context.workload.threads);
    let draw = move |part: crate::work::Part| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x407 ^ (part.thread as u64) << 32);
        let mut keys: Vec<u32> = plan.part(part.thread, part.threads).collect();
        keys.shuffle(&mut rng);
        keys.into()
    };
    let own_keys = context
        .pool
        .run("drawing", threads, Duration::from_secs(600), draw);
    own_keys
        .map(|own_keys| HotSlices { own_keys })
        .map_err(|error| BenchError::Failed(format!("cannot draw the keys: {error:?}")))
}
