//! A configuration that one thread reloads while workers read it.
//!
//! ```text
//! cargo run -p corewise-rcu --example config_cell
//! ```
//!
//! The workers serve requests with the configuration of the moment: each request reads it once, so
//! no request sees half of an old configuration and half of a new one. The reloader reads a text
//! (here from a list; a program would read a file when it gets a signal), and puts the result into
//! the cell; a text with a mistake leaves the old configuration in place. The administrator changes
//! a single setting with [`RcuCell::rcu`], which loses no change that the reloader makes meanwhile.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use corewise_rcu::RcuCell;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    version: u32,
    greeting: String,
    /// Only these names are greeted.
    guests: Vec<String>,
    is_verbose: bool,
}

impl FromStr for Config {
    type Err = String;

    /// Reads lines such as `version = 2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut config = Config {
            version: 0,
            greeting: String::new(),
            guests: Vec::new(),
            is_verbose: false,
        };
        for line in text.lines() {
            let (key, value) = line
                .split_once(" = ")
                .ok_or_else(|| format!("no value: {line:?}"))?;
            match key {
                "version" => config.version = value.parse().map_err(|_| format!("{value:?}?"))?,
                "greeting" => config.greeting = value.to_owned(),
                "guests" => config.guests = value.split(' ').map(str::to_owned).collect(),
                _ => return Err(format!("unknown key: {key:?}")),
            }
        }
        Ok(config)
    }
}

/// What the reloader finds, one after the other.
const TEXTS: [&str; 4] = [
    "version = 2\ngreeting = Hello\nguests = ada grace",
    "version = 3\ngreeting = Hi\nguests = ada grace barbara",
    "version = 4\ngreting = Ahoy",
    "version = 5\ngreeting = Welcome\nguests = ada barbara",
];

/// Serves one request: one section, so one configuration.
fn serve(config: &RcuCell<Config>, name: &str) -> Option<String> {
    let config = config.pin();
    let is_guest = config.guests.iter().any(|guest| guest == name);
    is_guest.then(|| format!("{}, {name} (version {})", config.greeting, config.version))
}

/// Serves requests until it is told to stop; returns the number of guests greeted.
fn work(config: &RcuCell<Config>, stop: &AtomicBool, served: &AtomicU64) -> u64 {
    let mut greeted = 0;
    for name in ["ada", "grace", "barbara", "mallory"].into_iter().cycle() {
        if stop.load(Relaxed) {
            break;
        }
        greeted += u64::from(serve(config, name).is_some());
        served.fetch_add(1, Relaxed);
    }
    greeted
}

/// Puts each text that is a configuration into the cell.
fn reload(config: &RcuCell<Config>) {
    for text in TEXTS {
        thread::sleep(Duration::from_millis(20));
        match text.parse::<Config>() {
            Ok(new) => {
                // The setting of the administrator stays.
                let old = config.rcu(|old| Config {
                    is_verbose: old.is_verbose,
                    ..new.clone()
                });
                println!("version {} replaces version {}", new.version, old.version);
            }
            Err(mistake) => println!("the configuration stays as it is: {mistake}"),
        }
    }
}

fn main() {
    let first = "version = 1\ngreeting = Good day\nguests = ada";
    let config = RcuCell::new(first.parse::<Config>().expect("a configuration"));
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| work(&config, &stop, &served)))
            .collect();
        let administrator = scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            drop(config.rcu(|old| Config {
                is_verbose: true,
                ..old.clone()
            }));
        });
        reload(&config);
        administrator.join().expect("it does not panic");
        stop.store(true, Relaxed);
        for worker in workers {
            let greeted = worker.join().expect("it does not panic");
            println!("a worker has greeted {greeted} guests");
        }
    });
    println!("{} requests were served", served.load(Relaxed));
    let last = config.into_inner();
    assert_eq!((last.version, last.is_verbose), (5, true));
}
