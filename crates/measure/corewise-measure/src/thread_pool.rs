//! The threads of a run.
//!
//! One pool serves a whole run: threads started for each slice anew would be measured with the cost
//! of their start for the allocator and a table's registry of threads. A thread blocks on a channel
//! between its parts, so an idle pool takes no CPU time.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use corewise_topology::{CpuId, current_cpu, pin_current_thread};

/// Time in which threads must leave a phase that is given up.
const GRACE: Duration = Duration::from_secs(10);

type Task = Arc<dyn Fn(Part) -> Box<dyn Any + Send> + Send + Sync>;
type Answer = (usize, Result<Box<dyn Any + Send>, String>);

/// The flag of threads outside a pool: no phase is given up.
static NEVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set while the current phase of this thread's pool is to be given up: it took too long.
    static GIVE_UP: Cell<&'static AtomicBool> = const { Cell::new(&NEVER) };
}

/// Returns whether the phase that this thread is in is to be given up. The result of a phase that
/// was given up must not be used.
#[inline(always)]
pub fn is_given_up() -> bool {
    // Relaxed: the flag publishes no other data, and a late reader does a few more operations.
    GIVE_UP.get().load(Ordering::Relaxed)
}

/// The index of a thread and the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The thread, from 0.
    pub thread: usize,
    /// Number of threads.
    pub threads: usize,
}

impl Part {
    /// The part of a thread that does all.
    pub const ALONE: Self = Self {
        thread: 0,
        threads: 1,
    };
}

/// Why a pool cannot start.
#[derive(Debug)]
pub enum PoolError {
    /// The system starts no thread with this number.
    Spawn(usize, io::Error),
    /// A thread cannot be pinned to this CPU.
    Pin(CpuId, io::Error),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(thread, error) => write!(f, "cannot start thread {thread}: {error}"),
            Self::Pin(cpu, error) => write!(f, "cannot pin a thread to CPU {}: {error}", cpu.0),
        }
    }
}

impl std::error::Error for PoolError {}

/// A pool of threads, pinned on request.
#[derive(Debug)]
pub struct ThreadPool {
    workers: Vec<Sender<Task>>,
    answers: Receiver<Answer>,
    /// The CPU that each thread is pinned to.
    places: Vec<Option<CpuId>>,
    /// Set while the current phase is to be given up. One byte is leaked for each pool: a thread
    /// that never returns may read it forever.
    give_up: &'static AtomicBool,
}

/// Why a phase has no result.
#[derive(Debug, PartialEq, Eq)]
pub enum PhaseError {
    /// A thread panicked, or the phase timed out and was given up; all threads returned.
    Failed(String),
    /// A thread did not return in time, nor after the phase, which is named, was given up.
    Stuck(&'static str),
}

impl ThreadPool {
    /// Starts a thread for each place; their names begin with `name`.
    pub fn start(name: &str, places: Vec<Option<CpuId>>) -> Result<Self, PoolError> {
        let (answer, answers) = channel();
        let mut workers = Vec::new();
        let threads = places.len();
        let give_up: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        for (thread, place) in places.iter().copied().enumerate() {
            let (worker, tasks) = channel::<Task>();
            let answer = answer.clone();
            let part = Part { thread, threads };
            let (ready, pinned) = channel();
            std::thread::Builder::new()
                .name(format!("{name}-{thread}"))
                .spawn(move || {
                    GIVE_UP.set(give_up);
                    serve(part, place, &ready, &tasks, &answer);
                })
                .map_err(|error| PoolError::Spawn(thread, error))?;
            pinned.recv().unwrap_or(Ok(()))?;
            workers.push(worker);
        }
        Ok(Self {
            workers,
            answers,
            places,
            give_up,
        })
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Returns the CPUs that the threads are pinned to.
    pub fn places(&self) -> &[Option<CpuId>] {
        &self.places
    }

    /// Runs a task on the first `active` threads, and returns their results in order. `phase` names
    /// it in errors.
    pub fn run<R: Send + 'static>(
        &self,
        phase: &'static str,
        active: usize,
        limit: Duration,
        task: impl Fn(Part) -> R + Send + Sync + 'static,
    ) -> Result<Vec<R>, PhaseError> {
        let active = active.min(self.workers.len());
        let task: Task = Arc::new(move |part| {
            Box::new(task(Part {
                threads: active,
                ..part
            }))
        });
        for worker in &self.workers[..active] {
            // A thread ends only when its channel does.
            let _ = worker.send(task.clone());
        }
        drop(task);
        let mut results: Vec<Option<R>> = (0..active).map(|_| None).collect();
        let (mut panicked, mut slow) = (None, false);
        for _ in 0..active {
            let mut answer = self.answers.recv_timeout(if slow { GRACE } else { limit });
            if matches!(answer, Err(RecvTimeoutError::Timeout)) && !slow {
                slow = true;
                self.give_up.store(true, Ordering::Relaxed); // Relaxed: see `is_given_up`
                answer = self.answers.recv_timeout(GRACE);
            }
            match answer {
                Ok((thread, Ok(result))) => {
                    results[thread] = result.downcast().ok().map(|result| *result)
                }
                Ok((_, Err(message))) => {
                    panicked = Some(message);
                    // Relaxed: see `is_given_up`. The others may wait for this thread.
                    self.give_up.store(true, Ordering::Relaxed);
                }
                Err(_) => return Err(PhaseError::Stuck(phase)),
            }
        }
        // Relaxed: all threads have answered, and the next task reaches them over a channel.
        self.give_up.store(false, Ordering::Relaxed);
        if let Some(message) = panicked {
            return Err(PhaseError::Failed(format!("panic in {phase}: {message}")));
        }
        if slow {
            let message = format!("{phase} took too long and was given up");
            return Err(PhaseError::Failed(message));
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// Returns the CPU that each thread runs on at this moment.
    pub fn whereabouts(&self) -> Vec<usize> {
        let at = |_| current_cpu().map_or(usize::MAX, |cpu| cpu.0);
        self.run("a look around", self.threads(), Duration::from_secs(10), at)
            .unwrap_or_default()
    }
}

fn serve(
    part: Part,
    place: Option<CpuId>,
    ready: &Sender<Result<(), PoolError>>,
    tasks: &Receiver<Task>,
    answer: &Sender<Answer>,
) {
    let pin = |cpu| pin_current_thread(cpu).map_err(|error| PoolError::Pin(cpu, error));
    let _ = ready.send(place.map_or(Ok(()), pin));
    while let Ok(task) = tasks.recv() {
        let result =
            catch_unwind(AssertUnwindSafe(|| task(part))).map_err(|panic| message(&*panic));
        drop(task); // before the answer, so that its data is dropped once all have answered
        if answer.send((part.thread, result)).is_err() {
            return;
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn every_thread_does_its_part() {
        let pool = ThreadPool::start("test", vec![None; 3]).expect("threads");
        assert_eq!(
            pool.run("a test", 3, LIMIT, |part| part.thread * 10 + part.threads),
            Ok(vec![3, 13, 23])
        );
        assert_eq!(
            pool.run("a test", 1, LIMIT, |part| part.threads),
            Ok(vec![1])
        );
    }

    #[test]
    fn a_panic_is_told_and_the_pool_goes_on() {
        let pool = ThreadPool::start("test", vec![None; 2]).expect("threads");
        let result = pool.run("a test", 2, LIMIT, |part| {
            assert_ne!(part.thread, 1, "one is bad")
        });
        assert!(matches!(result, Err(PhaseError::Failed(text)) if text.contains("one is bad")));
        assert_eq!(
            pool.run("a test", 2, LIMIT, |part| part.thread),
            Ok(vec![0, 1])
        );
    }

    #[test]
    fn a_phase_that_takes_too_long_is_given_up() {
        let pool = ThreadPool::start("test", vec![None]).expect("threads");
        let result = pool.run("a test", 1, Duration::from_millis(20), |_| {
            std::thread::sleep(Duration::from_millis(300))
        });
        assert!(matches!(result, Err(PhaseError::Failed(text)) if text.contains("given up")));
        assert_eq!(
            pool.run("a test", 1, LIMIT, |part| part.thread),
            Ok(vec![0])
        );
    }

    #[test]
    fn pinned_threads_stay() {
        let Some(first) = corewise_topology::allowed_cpus().and_then(|cpus| cpus.first().copied())
        else {
            return;
        };
        let pool = ThreadPool::start("test", vec![Some(CpuId(first))]).expect("threads");
        assert_eq!(pool.whereabouts(), [first]);
    }
}
