//! Measures cells one after the other. How a cell is measured is the section's.

use std::time::Instant;

use crate::cell_run::CellRun;
pub use crate::cell_run::Runner;
use crate::contender::Contender;
use crate::error::BenchError;
use crate::progress::Progress;
use crate::record::{End, Record, Role};
use crate::registry::Registry;
use crate::sections::section_of;
use crate::task::Task;

impl Runner<'_> {
    /// Measures all tasks, from the manifest to the end marker.
    pub fn run(&mut self, tasks: &[Task]) -> Result<End, BenchError> {
        let begin = Instant::now();
        let seconds = tasks.iter().map(|task| self.seconds(task));
        let seconds = seconds.collect::<Result<Vec<f64>, _>>()?;
        self.progress = Progress::of_run(seconds.iter().sum());
        self.sink
            .write(&Record::Manifest(Box::new(self.manifest.clone())))?;
        for (task, seconds) in tasks.iter().zip(seconds) {
            let id = task.workload.id();
            self.progress.begin(id, task.repetitions, seconds);
            self.cell(task)?;
            self.sink.sync()?;
        }
        self.progress.finish();
        self.end.seconds = begin.elapsed().as_secs();
        self.sink.write(&Record::End(self.end))?;
        self.sink.sync()?;
        Ok(self.end)
    }

    /// Estimates the seconds of a task.
    fn seconds(&self, task: &Task) -> Result<f64, BenchError> {
        let rows = contenders(self.registry, task)?.len();
        Ok(section_of(&task.workload).seconds(task, rows))
    }

    fn cell(&mut self, task: &Task) -> Result<(), BenchError> {
        let contenders = contenders(self.registry, task)?;
        section_of(&task.workload).run(&mut CellRun {
            runner: self,
            task,
            contenders: &contenders,
        })
    }
}

/// Returns the contenders of a cell: the reference, the reference again, the null table, the
/// others.
pub(crate) fn contenders(registry: &Registry, task: &Task) -> Result<Vec<Contender>, BenchError> {
    let workload = &task.workload;
    let section = section_of(workload);
    let contender = |name: &str, role| -> Result<Option<Contender>, BenchError> {
        let entry = registry.find(name)?;
        let able = entry
            .max_threads
            .is_none_or(|most| workload.threads <= most);
        let maker = section.maker(entry, workload);
        Ok(maker.filter(|_| able).map(|maker| Contender {
            entry: entry.clone(),
            role,
            maker,
            own_threads: entry.own_threads(section.capability(), workload.threads),
        }))
    };
    let reference = contender(&task.reference, Role::Reference)?.ok_or_else(|| {
        BenchError::Usage(format!(
            "`{}` cannot be the reference of {}",
            task.reference,
            workload.id()
        ))
    })?;
    let mut contenders = vec![
        Contender {
            role: Role::Again,
            ..reference.clone()
        },
        reference,
    ];
    let chosen = registry.chosen(&task.tables);
    let names = chosen.iter().filter(|name| **name != task.reference);
    for name in names.filter(|name| !registry.is_null(name)) {
        contenders.extend(contender(name, Role::DynTable)?);
    }
    let foreign = contenders
        .iter()
        .any(|contender| contender.entry.card.language != "Rust");
    for (name, wanted) in [("null", true), ("peer-null", foreign)] {
        if wanted && registry.is_null(name) {
            contenders.extend(contender(name, Role::Null)?);
        }
    }
    contenders.retain(|contender| section.takes_part(contender));
    Ok(contenders)
}
