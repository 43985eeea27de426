//! The server's engines, and macros that run a test with each of them.

use std::process::Command;
use std::thread;

use super::conversation::converse_with;
use super::server::COREWISE;
use super::{Client, Kind, TestServer, concerns_the_server_under_test};

/// Passes all engines, followed by its own input, to another macro. To add an engine, add one line
/// here: a module for its tests, and its name in `--engine`.
macro_rules! with_engines {
    ($macro:ident! $($rest:tt)*) => {
        $macro! {
            [
                relativistic "relativistic"
                locked "locked"
                global_lock "global-lock"
                lockhash "lockhash"
            ]
            $($rest)*
        }
    };
}

macro_rules! names {
    ([$($module:ident $engine:literal)+]) => {
        &[$($engine),+]
    };
}

/// An engine, named as in `--engine`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine(&'static str);

impl Engine {
    /// The names of the engines that are tested.
    pub(crate) const TESTED: &[&str] = with_engines!(names!);

    /// Runs a test with the engine of this name.
    pub(crate) fn run(name: &'static str, test: fn(Self)) {
        if Kind::under_test() == Kind::Corewise || name == Self::TESTED[0] {
            test(Self(name));
        } else {
            println!("memcached has no engines");
        }
    }

    /// The same for a test of what only Corewise has.
    pub(crate) fn run_of_corewise(name: &'static str, test: fn(Self)) {
        if concerns_the_server_under_test() {
            Self::run(name, test);
        }
    }

    /// Runs a test with all engines at the same time, which takes less time where the test waits.
    pub(crate) fn run_all(run: fn(&'static str, fn(Self)), test: fn(Self)) {
        thread::scope(|scope| {
            for &name in Self::TESTED {
                thread::Builder::new()
                    .name(name.to_owned())
                    .spawn_scoped(scope, move || run(name, test))
                    .expect("to start a thread");
            }
        });
    }

    /// A seed for this engine: `COREWISE_SEED` or `usual`, plus the engine's place in the list. So
    /// no engine repeats the conversations of another one.
    pub(crate) fn seed(self, usual: u64) -> u64 {
        let seed = std::env::var("COREWISE_SEED").ok();
        let seed = seed.map_or(usual, |seed| seed.parse().expect("a number"));
        let place = Self::TESTED.iter().position(|name| *name == self.0);
        seed + place.expect("a tested engine") as u64
    }

    /// Starts the server under test with this engine, two threads and 64 MB, on a free port.
    pub(crate) fn start(self) -> TestServer {
        self.with(&[])
    }

    /// Like [`start`](Self::start), with further options, which come last and take precedence.
    pub(crate) fn with(self, options: &[&str]) -> TestServer {
        match Kind::under_test() {
            Kind::Corewise => TestServer::with(&[&["--engine", self.0], options].concat()),
            Kind::Memcached => TestServer::with(options),
        }
    }

    /// The same, and a client of it.
    pub(crate) fn start_and_connect(self, options: &[&str]) -> (TestServer, Client) {
        let server = self.with(options);
        let client = server.connect();
        (server, client)
    }

    /// Runs a conversation with a new server.
    pub(crate) fn converse(self, text: &str) {
        converse_with(&self.start(), text);
    }

    /// All values that `--engine` accepts, according to the command's error message.
    pub(crate) fn all_there_are() -> Vec<String> {
        let wrong = Command::new(COREWISE)
            .args(["serve", "--engine", "no such"])
            .output()
            .unwrap();
        let said = String::from_utf8(wrong.stderr).unwrap();
        let (_, choice) = said.split_once("not an engine").expect(&said);
        // Every other part is enclosed in backquotes.
        choice
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    }
}

/// Makes a test `all_engines::name` of each `fn name(engine: Engine)` that runs it with all engines
/// at the same time. For tests that spend their time waiting. `; of corewise:` before the names:
/// these tests do not concern memcached.
macro_rules! for_all_engines_at_once {
    ($($test:ident)* $(; of corewise: $($ours:ident)+)?) => {
        mod all_engines {
            use crate::common::Engine;
            $(
                #[test]
                fn $test() {
                    Engine::run_all(Engine::run, super::$test);
                }
            )*
            $($(
                #[test]
                fn $ours() {
                    Engine::run_all(Engine::run_of_corewise, super::$ours);
                }
            )+)?
        }
    };
}

/// Makes a test `engine::name` of each `fn name(engine: Engine)`, for every engine. `of corewise:`
/// before the names: the tests do not concern memcached.
macro_rules! for_every_engine {
    (of corewise: $($test:ident)+) => {
        with_engines! { tests! run_of_corewise: $($test)+ }
    };
    ($($test:ident)+) => {
        with_engines! { tests! run: $($test)+ }
    };
}

macro_rules! tests {
    ([] $run:ident: $($test:ident)+) => {};
    ([$module:ident $engine:literal $($more:tt)*] $run:ident: $($test:ident)+) => {
        mod $module {
            use crate::common::Engine;
            $(
                #[test]
                fn $test() {
                    Engine::$run($engine, super::$test);
                }
            )+
        }
        tests! { [$($more)*] $run: $($test)+ }
    };
}
