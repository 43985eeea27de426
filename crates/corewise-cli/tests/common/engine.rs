//! The engines of the server, and what it takes to run a test over each.

use std::process::Command;

use super::conversation::converse_with;
use super::server::COREWISE;
use super::{Kind, TestServer};

/// Hands all engines, and what it is given, to another macro. A new engine is one more line here: a
/// module for its tests, and what `--engine` calls it.
macro_rules! with_engines {
    ($macro:ident! $($rest:tt)*) => {
        $macro! {
            [
                relativistic "relativistic"
                locked "locked"
                global_lock "global-lock"
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

/// An engine, as `--engine` calls it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine(&'static str);

impl Engine {
    /// The names of those that are tested.
    pub(crate) const TESTED: &[&str] = with_engines!(names!);

    /// Runs a test over the engine of this name.
    pub(crate) fn run(name: &'static str, test: fn(Self)) {
        if Kind::under_test() == Kind::Corewise || name == Self::TESTED[0] {
            test(Self(name));
        } else {
            println!("memcached has no engines");
        }
    }

    /// The server under test with this engine, two threads, 64 MB, on a free port.
    pub(crate) fn start(self) -> TestServer {
        self.with(&[])
    }

    /// The same with further options, which come last and win.
    pub(crate) fn with(self, options: &[&str]) -> TestServer {
        match Kind::under_test() {
            Kind::Corewise => TestServer::with(&[&["--engine", self.0], options].concat()),
            Kind::Memcached => TestServer::with(options),
        }
    }

    /// Holds a conversation with a new server.
    pub(crate) fn converse(self, text: &str) {
        converse_with(&self.start(), text);
    }

    /// Everything that `--engine` takes, as the command says it.
    pub(crate) fn all_there_are() -> Vec<String> {
        let wrong = Command::new(COREWISE)
            .args(["serve", "--engine", "no such"])
            .output()
            .unwrap();
        let said = String::from_utf8(wrong.stderr).unwrap();
        let (_, choice) = said.split_once("not an engine").expect(&said);
        // Every other part stands between backquotes.
        choice
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    }
}

/// Makes a test `engine::name` of each `fn name(engine: Engine)` for every engine.
macro_rules! for_every_engine {
    ($($test:ident)+) => {
        with_engines! { tests! $($test)+ }
    };
}

macro_rules! tests {
    ([] $($test:ident)+) => {};
    ([$module:ident $engine:literal $($more:tt)*] $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    crate::common::Engine::run($engine, super::$test);
                }
            )+
        }
        tests! { [$($more)*] $($test)+ }
    };
}
