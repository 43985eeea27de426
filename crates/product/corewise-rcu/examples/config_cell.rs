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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use corewise_rcu::RcuCell;

#[derive(Clone)]
struct Config {
    version: u32,
    greeting: String,
    is_verbose: bool,
}

/// Reads a version and a greeting.
fn parse(text: &str) -> Option<Config> {
    let (version, greeting) = text.split_once(": ")?;
    Some(Config {
        version: version.parse().ok()?,
        greeting: greeting.to_owned(),
        is_verbose: false,
    })
}

/// Serves requests until it is told to stop: one section for each, so one configuration.
fn work(config: &RcuCell<Config>, stop: &AtomicBool, served: &AtomicU64) {
    while !stop.load(Relaxed) {
        let config = config.load();
        let reply = format!("{} (version {})", config.greeting, config.version);
        assert!(reply.len() > config.greeting.len());
        served.fetch_add(1, Relaxed);
    }
}

/// Puts each text that is a configuration into the cell.
fn reload(config: &RcuCell<Config>) {
    for text in ["2: Hello", "3: Hi", "four: Ahoy", "5: Welcome"] {
        thread::sleep(Duration::from_millis(20));
        let Some(new) = parse(text) else {
            println!("the configuration stays as it is: {text:?}?");
            continue;
        };
        // The setting of the administrator stays.
        let old = config.rcu(|old| Config {
            is_verbose: old.is_verbose,
            ..new.clone()
        });
        println!("version {} replaces version {}", new.version, old.version);
    }
}

fn main() {
    let config = RcuCell::new(parse("1: Good day").expect("a configuration"));
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| work(&config, &stop, &served));
        }
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
    });
    println!("{} requests were served", served.load(Relaxed));
    let last = config.into_inner();
    assert_eq!((last.version, last.is_verbose), (5, true));
}
