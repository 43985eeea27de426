//! Scripts in Lua 5.1: the cache of their texts, and the state of Lua in which a loop runs them.
//!
//! A script runs on the thread of its loop, as one call ([`run`]). Its commands are executed by the
//! caller's [`Commands`], one by one, while the script runs. Each thread has one state of Lua,
//! which it makes for its first script.
//!
//! | module | what it has |
//! |---|---|
//! | `cache` | the scripts that `EVALSHA` finds, the same for all loops |
//! | `sandbox`, `prelude.lua` | what a script sees, and what it cannot change |
//! | `strings`, `patterns`, `bits`, `json`, `msgpack` | the libraries that are not Lua's |
//! | `replies` | replies as values of Lua, and values of Lua as replies |
//! | `watchdog`, `run_state` | when a script must end |
//!
//! # Guarantees
//!
//! 1. *A script leaves nothing behind.* No value of one script is seen by another: the globals
//!    cannot be changed, and neither can the libraries. A state that was changed all the same is
//!    dropped at the end of the script.
//! 2. *No way out.* There are no files, no processes, no modules and no bytecode.
//! 3. *A script ends.* The clock is read every [`HOOK_EVERY`] instructions of a coroutine, when one
//!    is made or resumed, in every command, while a pattern is matched, values are encoded or
//!    decoded, a text is compiled and a table is sorted, and before a long text is read or an
//!    element moves a long table. No function in C or Rust calls back into Lua without instructions
//!    in between. A script that has spent its time cannot catch the error: the handlers of
//!    `xpcall`, for which Lua calls no hook, do not run. One instruction may read or copy all that
//!    the script has made, so the more that is, the fewer instructions are between two looks: their
//!    number times the bytes is at most [`MOST_WORK`]. It is more where a script makes its strings
//!    longer between two looks, or resumes a coroutine that was made when they were shorter.
//! 4. *Memory.* The state of a thread has at most [`Limits::memory`] bytes, garbage included. What
//!    functions in Rust collect, and the arguments of a command, have the same bound. Compiled
//!    scripts, which each collection of garbage reads, have a small part of it. A script that
//!    has no memory or no references left ends as one that has spent its time, and its state is
//!    dropped.
//! 5. *Numbers.* The numbers of `math.random` are the same in each run of the server, one after the
//!    other on each loop. A seed that a script chooses is forgotten at its end.

mod arguments;
mod bits;
mod cache;
mod json;
mod msgpack;
mod number;
mod patterns;
mod replies;
mod run_state;
mod sandbox;
mod sha1;
mod strings;
#[cfg(test)]
mod tests;
mod watchdog;

pub(crate) use cache::{Script, Scripts, digest};
use corewise_wire::resp::{Request, Version};
use mlua::Lua;
pub(crate) use run_state::{Kill, RunState};
use sandbox::Sandbox;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Instructions between two looks at the clock.
const HOOK_EVERY: u32 = 16;
/// The most instructions between two looks, times the bytes that the script has made.
const MOST_WORK: usize = 16 << 20;
/// Elements of a table that a function in Rust reads between two looks at the clock.
const ELEMENTS: usize = 256;

/// What scripts may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of the state of one thread.
    pub(crate) memory: usize,
}

/// Executes the commands of a script.
pub(crate) trait Commands {
    /// Executes a request, and appends its reply in this version to `reply`; or returns the error
    /// for a request that a script cannot have.
    fn call(
        &mut self,
        request: Request<'_>,
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), String>;
}

/// A script to run, and where its reply goes.
pub(crate) struct Run<'r> {
    pub(crate) script: &'r Arc<Script>,
    pub(crate) keys: &'r [&'r [u8]],
    pub(crate) args: &'r [&'r [u8]],
    /// The index of the loop.
    pub(crate) loop_index: usize,
    /// The version that the client has chosen.
    pub(crate) version: Version,
    /// How long the reply may become.
    pub(crate) most: usize,
}

thread_local! {
    /// The state of this thread, which belongs to a server.
    static SANDBOX: RefCell<Option<(Arc<Scripts>, Sandbox)>> = const { RefCell::new(None) };
}

/// Runs a script, and appends its reply; or returns an error text for one that cannot be compiled.
/// Takes from `time` what it has spent.
pub(crate) fn run(
    scripts: &Arc<Scripts>,
    run: &Run<'_>,
    time: &mut Duration,
    commands: &mut dyn Commands,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    with_sandbox(scripts, run.loop_index, time, |sandbox, deadline| {
        sandbox.run(run, deadline, commands, out)
    })
}

/// Compiles a script; returns the error text if that fails. Takes from `time` what it has spent.
pub(crate) fn compile(
    scripts: &Arc<Scripts>,
    loop_index: usize,
    time: &mut Duration,
    script: &Arc<Script>,
) -> Result<(), String> {
    with_sandbox(scripts, loop_index, time, |sandbox, deadline| {
        sandbox.load(script, deadline)
    })
}

fn with_sandbox(
    scripts: &Arc<Scripts>,
    loop_index: usize,
    time: &mut Duration,
    with: impl FnOnce(&mut Sandbox, Option<Instant>) -> Result<(), String>,
) -> Result<(), String> {
    // The time of a transaction has been spent: a script that must end at once needs no state.
    if time.is_zero() {
        return Err(watchdog::Stopped::TimedOut.text().into());
    }
    let begin = Instant::now();
    let deadline = begin.checked_add(*time);
    let result = SANDBOX.with_borrow_mut(|state| {
        if state
            .as_ref()
            .is_some_and(|(of, _)| !Arc::ptr_eq(of, scripts))
        {
            *state = None;
        }
        let (_, sandbox) = match state {
            Some(state) => state,
            None => {
                let made = Sandbox::new(scripts.limits.memory, scripts.run_state(loop_index));
                let made = made.map_err(|error| format!("ERR no state of Lua: {error}"))?;
                state.insert((Arc::clone(scripts), made))
            }
        };
        sandbox.follow_flushes(scripts.flushes());
        let result = with(sandbox, deadline);
        if !sandbox.is_clean() {
            *state = None;
        }
        result
    });
    *time = time.saturating_sub(begin.elapsed());
    result
}

/// Collects garbage if there may be enough of it in the way of a new value of this length, and
/// chooses when the clock is read next.
fn make_room(lua: &Lua, bytes: usize) -> mlua::Result<()> {
    match lua.app_data_ref::<sandbox::Bounds>() {
        Some(bounds) => bounds.make_room(lua, bytes),
        None => Ok(()),
    }
}

/// Fails if a function in Rust has collected as many bytes as the state may have, or if the script
/// must end.
fn check_room(lua: &Lua, bytes: usize) -> mlua::Result<()> {
    let Some(bounds) = lua.app_data_ref::<sandbox::Bounds>() else {
        return Ok(());
    };
    if bytes > bounds.memory {
        return Err(mlua::Error::MemoryError("not enough memory".into()));
    }
    bounds.watchdog.check().map_err(sandbox::stopped)
}

/// A string of Lua, for which there is room if garbage was in the way.
fn new_string(lua: &Lua, bytes: &[u8]) -> mlua::Result<mlua::LuaString> {
    if bytes.len() > arguments::LONG {
        make_room(lua, bytes.len())?;
    }
    lua.create_string(bytes)
}
