//! The crate's programs, and the project's code inside a simulation.

mod conformance;
#[cfg(corewise_sim)]
mod facade;
#[cfg(corewise_sim)]
mod histories;
#[cfg(corewise_sim)]
mod locks;
mod programs;

/// A configuration with this seed.
#[cfg(corewise_sim)]
fn seeded(seed: u64) -> corewise_sim::Config {
    corewise_sim::Config {
        seed,
        ..corewise_sim::Config::default()
    }
}

/// The same on a machine with 160 hardware threads.
#[cfg(corewise_sim)]
fn on_machine(seed: u64) -> corewise_sim::Config {
    use corewise_sim::{ParameterSample, SimMachine};

    let preset = SimMachine::preset("westmere-ex-8").expect("a preset");
    let mut machine = preset.at(ParameterSample::Seed(seed));
    // As much noise as without a machine.
    machine.jitter = 60;
    corewise_sim::Config {
        machine: Some(machine),
        // A schedule that repeats itself for ever is an error.
        max_accesses: 1 << 25,
        ..seeded(seed)
    }
}

/// Runs `body` in some simulated threads, with their numbers from 0, and joins them.
#[cfg(corewise_sim)]
fn in_threads<R: Send + 'static>(
    threads: u64,
    body: impl Fn(u64) -> R + Send + Sync + 'static,
) -> Vec<R> {
    use corewise_atomic::{sync::Arc, thread};

    let body = Arc::new(body);
    let start = |number| {
        let body = body.clone();
        thread::spawn(move || body(number))
    };
    let handles: Vec<_> = (0..threads).map(start).collect();
    let join = |handle: thread::JoinHandle<R>| handle.join().expect("no panic");
    handles.into_iter().map(join).collect()
}
