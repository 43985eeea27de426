//! The state of Lua of one thread: what a script sees, and what it may do.

use super::arguments::{self, CommandError, cause, command_error};
use super::cache::Digest;
use super::json::Json;
use super::replies::{self, Argument, Failure, Printer, trimmed};
use super::run_state::RunState;
use super::watchdog::{Stopped, Watchdog};
use super::{Commands, ELEMENTS, HOOK_EVERY, MOST_WORK, Run, Script, bits, msgpack, sha1, strings};
use corewise_wire::resp::{RequestQueue, Version, until_nul};
use mlua::state::{GcIncParams, GcMode};
use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table,
    Value, VmState,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The most compiled scripts of a thread. They are compiled again when all were forgotten.
const MAX_COMPILED: usize = 512;
/// The part of the memory of a state that its compiled scripts may have.
const COMPILED_PART: usize = 16;
/// The bytes that a compiled script is taken to have for each byte of its text. Most have fewer.
const COMPILED_PER_BYTE: usize = 8;
/// The most bytes of a text that is compiled.
const MAX_TEXT: usize = 1 << 20;
/// The most bytes that a state at rest may have more than after its last collection of garbage.
const KEPT_GARBAGE: usize = 1 << 20;
/// The most bytes of the text of an error that ends a script.
const MAX_ERROR: usize = 16 << 10;
/// The most lines that one script logs, and the most bytes of each.
const MAX_LOGGED: u32 = 16;
const MAX_LOGGED_BYTES: usize = 1_024;
/// The state of `math.random` before its first number.
const FIRST_RANDOM: u64 = 0x1234_abcd_330e;
/// The name of a script in Lua's messages.
const NAME: &str = "@user_script";
pub(super) const PRELUDE: &str = "=prelude";

/// What bounds the functions in Rust.
pub(super) struct Bounds {
    /// The bytes that the state may have.
    pub(super) memory: usize,
    pub(super) watchdog: Rc<Watchdog>,
    collector: Collector,
    pace: Pace,
}

impl Bounds {
    /// Collects garbage if there may be enough of it in the way of a new value of this length, and
    /// chooses when the hook is called next.
    pub(super) fn make_room(&self, lua: &Lua, bytes: usize) -> Result<()> {
        self.collector.make_room(lua, self.memory, bytes)?;
        self.pace.follow(lua, bytes)
    }
}

/// The number of instructions between two calls of the hook.
#[derive(Default)]
struct Pace {
    /// The bytes that the state had before the script.
    before: Cell<usize>,
    /// Whether a coroutine may have another number than [`HOOK_EVERY`].
    has_changed: Cell<bool>,
}

impl Pace {
    /// A script begins.
    fn begin(&self, lua: &Lua) -> Result<()> {
        self.before.set(lua.used_memory());
        if self.has_changed.take() {
            set_hook(lua, HOOK_EVERY)?;
        }
        Ok(())
    }

    /// Chooses the number by the bytes that the script has made, and this number more.
    fn follow(&self, lua: &Lua, bytes: usize) -> Result<()> {
        let used = lua.used_memory();
        self.before.set(self.before.get().min(used));
        let made = used - self.before.get() + bytes;
        let every = (MOST_WORK / made.max(1)).clamp(1, HOOK_EVERY as usize) as u32;
        // The interval is one coroutine's; a new coroutine begins with that of its creator.
        if every != HOOK_EVERY || self.has_changed.get() {
            self.has_changed.set(true);
            set_hook(lua, every)?;
        }
        Ok(())
    }
}

/// Sets the hook of the coroutine that runs, and of those that it makes.
fn set_hook(lua: &Lua, every: u32) -> Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(every);
    lua.set_global_hook(triggers, |lua, _| {
        if let Some(bounds) = lua.app_data_ref::<Bounds>() {
            bounds.watchdog.check().map_err(stopped)?;
            bounds.make_room(lua, 0)?;
        }
        Ok(VmState::Continue)
    })
}

/// When garbage is collected beside Lua's own cycles.
///
/// Lua 5.1 fails for lack of memory without having looked for garbage. Its own cycles begin when
/// there is twice as much as was left by the last one, which may be more than the state may have.
#[derive(Default)]
struct Collector {
    /// The bytes that the last collection has left.
    left: Cell<usize>,
}

impl Collector {
    /// The cost of a collection grows with what it leaves, so the garbage of one must be worth it:
    /// half of what is free, or a small part of all if the value has no place otherwise.
    fn make_room(&self, lua: &Lua, memory: usize, bytes: usize) -> Result<()> {
        let (used, left) = (lua.used_memory(), self.left.get());
        let garbage = used.saturating_sub(left);
        let is_worth_it = garbage > memory.saturating_sub(left) / 2;
        let is_needed = used.saturating_add(bytes) > memory - memory / 8;
        if is_worth_it {
            self.collect(lua, 0)
        } else if is_needed {
            self.collect(lua, memory / 32)
        } else {
            Ok(())
        }
    }

    /// Collects garbage if there may be more than these bytes of it.
    fn collect(&self, lua: &Lua, most: usize) -> Result<()> {
        if lua.used_memory().saturating_sub(self.left.get()) > most {
            self.collect_all(lua)?;
        }
        Ok(())
    }

    fn collect_all(&self, lua: &Lua) -> Result<()> {
        lua.gc_collect()?;
        self.left.set(lua.used_memory());
        Ok(())
    }
}

/// The error with which a script ends that must. Nothing catches it.
pub(super) fn stopped(_: Stopped) -> Error {
    Error::RuntimeError("the script was stopped".into())
}

/// What the functions of one script share.
struct State {
    watchdog: Rc<Watchdog>,
    /// The bytes that the state may have.
    memory: usize,
    json: Json,
    /// The version in which the script sees replies.
    version: Cell<Version>,
    random: Cell<u64>,
    /// What `random` was before the script chose a seed of its own.
    unseeded: Cell<Option<u64>>,
    logged: Cell<u32>,
}

/// A state of Lua.
pub(super) struct Sandbox {
    lua: Lua,
    /// Calls a function, and tells where its error was raised.
    caller: Function,
    /// Compiles a text, and looks at the time while it does.
    compiler: Function,
    /// What the globals show.
    all: Table,
    redis: Table,
    /// The tables that all scripts see. They are empty.
    proxies: Table,
    state: Rc<State>,
    compiled: Compiled,
    memory: usize,
    has_failed: bool,
}

/// The scripts that were compiled. The cost of each collection of garbage grows with their bytes.
#[derive(Default)]
struct Compiled {
    functions: HashMap<Digest, Function>,
    /// The bytes that they are taken to have.
    bytes: usize,
    /// The number of `SCRIPT FLUSH` before.
    flushes: usize,
}

impl Compiled {
    /// Forgets all scripts.
    fn clear(&mut self) {
        self.functions.clear();
        self.bytes = 0;
    }

    /// Keeps a script, in the place of all others if they have more bytes than `most` with it. One
    /// that has more alone is not kept.
    fn insert(&mut self, script: &Script, function: Function, most: usize) {
        let bytes = script.text.len().saturating_mul(COMPILED_PER_BYTE);
        if bytes > most {
            return;
        }
        if self.functions.len() >= MAX_COMPILED || self.bytes + bytes > most {
            self.clear();
        }
        self.bytes += bytes;
        self.functions.insert(script.digest, function);
    }
}

/// How a script has ended.
enum Ended {
    /// With this value.
    Value(Value),
    /// With an error: a line without `-`.
    Error(Vec<u8>),
}

impl Sandbox {
    pub(super) fn new(memory: usize, run_state: Arc<RunState>) -> Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let state = Rc::new(State {
            watchdog: Rc::new(Watchdog::new(run_state)),
            memory,
            json: Json::default(),
            version: Cell::new(Version::Resp2),
            random: Cell::new(FIRST_RANDOM),
            unseeded: Cell::new(None),
            logged: Cell::new(0),
        });
        lua.set_app_data(Bounds {
            memory,
            watchdog: Rc::clone(&state.watchdog),
            collector: Collector::default(),
            pace: Pace::default(),
        });
        let all = lua.globals();
        for name in [
            "dofile", "loadfile", "print", "require", "module", "newproxy", "getfenv", "setfenv",
            "_G", "package", "debug", "io", "os",
        ] {
            all.raw_remove(name)?;
        }
        let helpers = helpers(&lua, &state)?;
        strings::install(&lua, &all.raw_get("string")?, &helpers, &state.watchdog)?;
        install_tables(&lua, &all.raw_get("table")?)?;
        let math = all.raw_get("math")?;
        install_extremes(&lua, &math)?;
        install_random(&lua, &math, &state)?;
        all.raw_set("bit", bits::table(&lua)?)?;
        all.raw_set("cjson", state.json.table(&lua)?)?;
        all.raw_set("cmsgpack", msgpack::table(&lua)?)?;
        let redis = redis_table(&lua, &state)?;
        all.raw_set("redis", &redis)?;
        let proxies = lua.create_table()?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
        let (globals, caller, compiler): (Table, Function, Function) =
            prelude.call((&all, helpers, &proxies))?;
        lua.set_globals(globals)?;
        set_hook(&lua, HOOK_EVERY)?;
        // A cycle is done at once: the steps of Lua 5.1 are as short after the allocation of a long
        // string as after that of a short one, and never end when many are long.
        lua.gc_set_mode(GcMode::Incremental(
            GcIncParams::default().step_multiplier(0),
        ));
        lua.gc_collect()?;
        lua.set_memory_limit(memory)?;
        Ok(Self {
            lua,
            caller,
            compiler,
            all,
            redis,
            proxies,
            state,
            compiled: Compiled::default(),
            memory,
            has_failed: false,
        })
    }

    /// Whether the next script finds the state as this one has found it.
    pub(super) fn is_clean(&self) -> bool {
        let mut proxies = self.proxies.sequence_values::<Table>();
        !self.has_failed
            && self.state.watchdog.stopped().is_none()
            && proxies.all(|proxy| proxy.is_ok_and(|proxy| proxy.is_empty()))
            && self.lua.used_memory() <= self.memory / 4 + KEPT_GARBAGE
    }

    fn begin(&mut self, deadline: Option<Instant>) {
        self.state.watchdog.begin(deadline);
        if let Some(bounds) = self.lua.app_data_ref::<Bounds>() {
            self.has_failed |= bounds.pace.begin(&self.lua).is_err();
        }
    }

    /// Compiles a script for its next run.
    pub(super) fn load(
        &mut self,
        script: &Arc<Script>,
        deadline: Option<Instant>,
    ) -> std::result::Result<(), String> {
        if self.compiled.functions.contains_key(&script.digest) {
            return Ok(());
        }
        self.begin(deadline);
        let compiled = self.compile(script);
        let stopped = self.state.watchdog.end();
        self.collect_garbage();
        compiled?;
        stopped.map_or(Ok(()), |why| Err(why.text().into()))
    }

    /// Forgets the compiled scripts if there were more `SCRIPT FLUSH` than this state knows.
    pub(super) fn follow_flushes(&mut self, flushes: usize) {
        if std::mem::replace(&mut self.compiled.flushes, flushes) != flushes {
            self.compiled.clear();
        }
    }

    /// The function that a script is.
    fn compile(&mut self, script: &Arc<Script>) -> std::result::Result<Function, String> {
        if let Some(function) = self.compiled.functions.get(&script.digest) {
            return Ok(function.clone());
        }
        let body = script.body();
        let failed = |why: &str| {
            let text = why.trim_end();
            format!("ERR Error compiling script (new function): {text}")
        };
        if body.first() == Some(&27) {
            return Err(failed("user_script:1: unexpected symbol near '<\\27>'"));
        }
        if body.len() > MAX_TEXT {
            return Err(failed("user_script: the script is too long"));
        }
        let text = self.lua.create_string(body);
        let made = text.and_then(|text| self.compiler.call((text, NAME)));
        let (function, failure): (Option<Function>, Value) = made.unwrap_or_else(|error| {
            self.has_failed = true;
            (None, Value::Error(Box::new(error)))
        });
        let Some(function) = function else {
            note_unhandled(&self.state.watchdog, &failure);
            if let Some(why) = self.state.watchdog.stopped() {
                return Err(why.text().into());
            }
            return Err(match self.lua.coerce_string(failure) {
                Ok(Some(text)) => failed(&text.to_string_lossy()),
                _ => failed("user_script: it cannot be compiled"),
            });
        };
        let most = self.memory / COMPILED_PART;
        self.compiled.insert(script, function.clone(), most);
        Ok(function)
    }

    /// Runs a script until the deadline, and appends its reply.
    pub(super) fn run(
        &mut self,
        run: &Run<'_>,
        deadline: Option<Instant>,
        commands: &mut dyn Commands,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let state = Rc::clone(&self.state);
        self.begin(deadline);
        let function = match self.compile(run.script) {
            Ok(function) => function,
            Err(error) => {
                state.watchdog.end();
                return Err(error);
            }
        };
        state.json.reset();
        state.version.set(Version::Resp2);
        state.logged.set(0);
        let ended = self.execute(run, &function, commands);
        let start = out.len();
        let mut printer = Printer {
            version: run.version,
            of_script: state.version.get(),
            watchdog: &state.watchdog,
            out,
            most: start.saturating_add(run.most),
        };
        let printed = match ended {
            Ok(Ended::Value(value)) => printer.print(&value),
            Ok(Ended::Error(text)) => {
                print_error(out, &text);
                Ok(())
            }
            Err(error) => Err(Failure::Lua(error)),
        };
        if let Err(failure) = printed {
            out.truncate(start);
            let text = match failure {
                Failure::TooLong => "ERR the reply of the script exceeds the maximum length".into(),
                Failure::Lua(error) => {
                    self.has_failed = true;
                    note_error(&state.watchdog, &error);
                    state.watchdog.stopped().map_or_else(
                        || {
                            let text = cause(&error).to_string();
                            // Lua's traceback is behind the first line.
                            let text = text.lines().next().unwrap_or("");
                            format!("ERR Error running script: {text}")
                        },
                        |why| why.of(run.script),
                    )
                }
            };
            print_error(out, text.as_bytes());
        }
        if let Some(why) = state.watchdog.end() {
            out.truncate(start);
            print_error(out, why.of(run.script).as_bytes());
        }
        self.tidy_up();
        Ok(())
    }

    /// Removes what the script was given, and collects the garbage that it leaves. A state at rest
    /// has at most a quarter of its memory.
    fn tidy_up(&mut self) {
        let mut removed = ["KEYS", "ARGV"]
            .into_iter()
            .map(|name| self.all.raw_remove(name));
        let mut more = ["call", "pcall"]
            .into_iter()
            .map(|name| self.redis.raw_remove(name));
        self.has_failed |= removed.any(|done| done.is_err()) || more.any(|done| done.is_err());
        if let Some(random) = self.state.unseeded.take() {
            self.state.random.set(random);
        }
        self.collect_garbage();
    }

    /// Collects garbage if there may be enough of it. Compiled scripts are forgotten if more than a
    /// quarter of the memory is left then.
    fn collect_garbage(&mut self) {
        let Some(bounds) = self.lua.app_data_ref::<Bounds>() else {
            return;
        };
        let collector = &bounds.collector;
        self.has_failed |= collector.collect(&self.lua, KEPT_GARBAGE).is_err();
        if collector.left.get() > self.memory / 4 {
            self.compiled.clear();
            self.has_failed |= collector.collect_all(&self.lua).is_err();
        }
    }

    fn execute(
        &mut self,
        run: &Run<'_>,
        function: &Function,
        commands: &mut dyn Commands,
    ) -> Result<Ended> {
        let list = |values: &[&[u8]]| -> Result<Table> {
            let table = self.lua.create_table_with_capacity(values.len(), 0)?;
            for (index, value) in values.iter().enumerate() {
                if index.is_multiple_of(ELEMENTS) || value.len() > arguments::LONG {
                    super::check_room(&self.lua, 0)?;
                }
                table.raw_set(index + 1, self.lua.create_string(value)?)?;
            }
            Ok(table)
        };
        self.all.raw_set("KEYS", list(run.keys)?)?;
        self.all.raw_set("ARGV", list(run.args)?)?;
        super::make_room(&self.lua, 0)?;
        let calls = RefCell::new(Calls {
            commands,
            request: RequestQueue::default(),
            reply: Vec::new(),
        });
        let (state, redis) = (&*self.state, &self.redis);
        let results: MultiValue = self.lua.scope(|scope| {
            let call = scope.create_function(|lua, args: MultiValue| {
                calls.borrow_mut().run(lua, state, &args, true)
            })?;
            let pcall = scope.create_function(|lua, args: MultiValue| {
                calls.borrow_mut().run(lua, state, &args, false)
            })?;
            redis.raw_set("call", call)?;
            redis.raw_set("pcall", pcall)?;
            self.caller.call(function)
        })?;
        self.ended(run.script, results)
    }

    /// What the script's result means.
    fn ended(&mut self, script: &Script, results: MultiValue) -> Result<Ended> {
        let digest = String::from_utf8_lossy(&script.digest).into_owned();
        let mut results = results.into_iter();
        let is_done = matches!(results.next(), Some(Value::Boolean(true)));
        let value = results.next().unwrap_or(Value::Nil);
        if !is_done {
            note_unhandled(&self.state.watchdog, &value);
        }
        if let Some(why) = self.state.watchdog.stopped() {
            return Ok(Ended::Error(why.of(script).into_bytes()));
        }
        if is_done {
            return Ok(Ended::Value(value));
        }
        let Value::Table(failure) = value else {
            // The error handler has failed itself, for lack of memory or of stack.
            self.has_failed = true;
            let text = self.lua.coerce_string(value)?;
            let text =
                text.map_or_else(|| "execution failure".into(), |text| text.to_string_lossy());
            return Ok(Ended::Error(
                format!("ERR Error running script f_{digest}, {text:.100}").into_bytes(),
            ));
        };
        let mut line = match failure.raw_get(1)? {
            Value::String(text) => until_nul(&text.as_bytes()).to_vec(),
            _ => b"ERR the error has no text".to_vec(),
        };
        if let (Value::String(source), Some(at)) =
            (failure.raw_get(2)?, failure.raw_get::<Option<f64>>(3)?)
        {
            line.extend_from_slice(format!(" script: {digest}, on ").as_bytes());
            line.extend_from_slice(&source.as_bytes());
            line.extend_from_slice(format!(":{at}.").as_bytes());
        }
        Ok(Ended::Error(line))
    }
}

#[cfg(test)]
impl Sandbox {
    /// The number of compiled scripts that are kept.
    pub(super) fn compiled(&self) -> usize {
        self.compiled.functions.len()
    }

    /// The bytes that the last collection of garbage has left.
    pub(super) fn left(&self) -> usize {
        let bounds = self.lua.app_data_ref::<Bounds>().unwrap();
        bounds.collector.left.get()
    }

    /// Collects all garbage.
    pub(super) fn collect(&self) {
        let bounds = self.lua.app_data_ref::<Bounds>().unwrap();
        bounds.collector.collect_all(&self.lua).unwrap();
    }

    pub(super) fn watchdog(&self) -> &Rc<Watchdog> {
        &self.state.watchdog
    }

    /// Lets the state have this number of bytes more than it has.
    pub(super) fn leave(&self, bytes: usize) {
        let limit = self.lua.used_memory() + bytes;
        self.lua.set_memory_limit(limit).unwrap();
    }
}

fn print_error(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(MAX_ERROR)];
    corewise_wire::resp::Encoder::new(Version::Resp2, out).error(&[trimmed(text)]);
}

/// The commands of a script that runs.
struct Calls<'c> {
    commands: &'c mut dyn Commands,
    request: RequestQueue,
    reply: Vec<u8>,
}

impl Calls<'_> {
    /// `redis.call` and `redis.pcall`: the one raises errors, the other returns them.
    fn run(&mut self, lua: &Lua, state: &State, args: &MultiValue, raises: bool) -> Result<Value> {
        state.watchdog.check().map_err(stopped)?;
        self.reply.clear();
        let version = state.version.get();
        if let Err(text) = self.execute(args, version, state.memory) {
            if raises {
                return Err(command_error(text));
            }
            return Ok(Value::Table(replies::error_table(lua, text.as_bytes())?));
        }
        if raises && let [b'-', text @ ..] = &self.reply[..] {
            return Err(command_error(trimmed(text)));
        }
        super::make_room(lua, self.reply.len())?;
        let value = replies::to_lua(lua, &mut &self.reply[..])?;
        if self.reply.capacity() > KEPT {
            self.reply = Vec::new();
        }
        Ok(value)
    }

    fn execute(
        &mut self,
        args: &MultiValue,
        version: Version,
        memory: usize,
    ) -> std::result::Result<(), String> {
        if args.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call".into());
        }
        let args: Option<Vec<Argument>> = args.iter().map(replies::argument).collect();
        let Some(args) = args else {
            let text = "ERR Lua redis lib command arguments must be strings or integers";
            return Err(text.into());
        };
        // The same long text may be many arguments.
        let bytes = args.iter().map(Argument::len).sum::<usize>();
        if bytes > memory {
            let text = "ERR the arguments of the command exceed the memory of the script";
            return Err(format!("{text}, see --script-memory"));
        }
        self.request.clear();
        self.request.push_elements(args.len(), |push| {
            for arg in &args {
                match arg {
                    Argument::Text(text) => push(&text.as_bytes()),
                    Argument::Printed(text) => push(text.as_bytes()),
                }
            }
        });
        match self.request.iter().next() {
            Some(request) => self.commands.call(request, version, &mut self.reply),
            None => Ok(()),
        }
    }
}

/// A longer buffer of a reply is given back.
const KEPT: usize = 64 << 10;

/// The functions that `prelude.lua` needs.
fn helpers(lua: &Lua, state: &Rc<State>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("longest_text", MAX_TEXT as f64)?;
    let of_stop = Rc::clone(state);
    let is_stopped = lua.create_function(move |lua, failure: Value| {
        note(lua, &of_stop, &failure);
        Ok(of_stop.watchdog.stopped().is_some())
    })?;
    table.raw_set("is_stopped", is_stopped)?;
    let dog = Rc::clone(&state.watchdog);
    let check = lua.create_function(move |_, ()| dog.check().map_err(stopped))?;
    table.raw_set("check", check)?;
    let of_error = Rc::clone(state);
    let describe = lua.create_function(move |lua, error: Value| {
        note(lua, &of_error, &error);
        describe(lua, &error)
    })?;
    table.raw_set("describe", describe)?;
    table.raw_set("where", lua.create_function(|lua, ()| place(lua))?)?;
    Ok(table)
}

/// Lua's error for an allocation that failed. A script may raise an error of this text, too.
const NO_MEMORY: &[u8] = b"not enough memory";

/// Ends the script if an error that it may catch says that there is no memory or no reference left.
/// Lua and mlua may fail at the next step again then, where a script can do nothing. If only one
/// value was too large, there is room for the script to go on.
fn note(lua: &Lua, state: &State, error: &Value) {
    match error {
        Value::String(text) if text.as_bytes() == NO_MEMORY && is_full(lua, state) => {
            state.watchdog.stop(Stopped::OutOfMemory);
        }
        Value::Error(error) => note_error(&state.watchdog, error),
        _ => {}
    }
}

/// Whether nearly all memory is used.
fn is_full(lua: &Lua, state: &State) -> bool {
    lua.used_memory() > state.memory - state.memory / 8
}

/// As [`note`] for an error for which Lua has called no handler: one of this text is Lua's.
fn note_unhandled(watchdog: &Watchdog, error: &Value) {
    match error {
        Value::String(text) if text.as_bytes() == NO_MEMORY => {
            watchdog.stop(Stopped::OutOfMemory);
        }
        Value::Error(error) => note_error(watchdog, error),
        _ => {}
    }
}

fn note_error(watchdog: &Watchdog, error: &Error) {
    match cause(error) {
        Error::MemoryError(_) => watchdog.stop(Stopped::OutOfMemory),
        Error::StackError => watchdog.stop(Stopped::OutOfStack),
        _ => {}
    }
}

/// The text of an error of a function in Rust, and whether it is one of a command.
fn describe(lua: &Lua, error: &Value) -> Result<(LuaString, bool)> {
    let Value::Error(error) = error else {
        return Ok((lua.create_string("userdata")?, false));
    };
    Ok(match cause(error) {
        Error::RuntimeError(text) => (lua.create_string(text)?, false),
        Error::MemoryError(_) => (lua.create_string("not enough memory")?, false),
        other => match other.downcast_ref::<CommandError>() {
            Some(CommandError(text)) => (lua.create_string(text)?, true),
            None => (lua.create_string(other.to_string())?, false),
        },
    })
}

/// The source and the line of the function of the script that is executed.
fn place(lua: &Lua) -> Result<(Option<String>, Option<f64>)> {
    let mut level = 1;
    loop {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.map(std::borrow::Cow::into_owned);
            let is_script = source.what != "C" && name.as_deref() != Some(PRELUDE);
            (is_script && frame.current_line().is_some())
                .then(|| (name, frame.current_line().map(|line| line as f64)))
        });
        match frame {
            Some(Some(place)) => return Ok(place),
            Some(None) if level < 64 => level += 1,
            _ => return Ok((None, None)),
        }
    }
}

/// Replaces functions over tables that would take long without a look at the clock.
fn install_tables(lua: &Lua, tables: &Table) -> Result<()> {
    let concat = lua.create_function(|lua, args| strings::concat(lua, &args))?;
    tables.raw_set("concat", concat)?;
    let native: Function = tables.raw_get("maxn")?;
    let maxn = lua.create_function(move |lua, args: MultiValue| {
        let Some(Value::Table(table)) = args.front() else {
            return Err(arguments::expected(lua, &args, 0, "table"));
        };
        super::check_room(lua, 0)?;
        native.call::<f64>(table)
    })?;
    tables.raw_set("maxn", maxn)
}

/// Replaces `math.max` and `math.min`, whose arguments may be many long texts.
fn install_extremes(lua: &Lua, math: &Table) -> Result<()> {
    type IsBetter = fn(&f64, &f64) -> bool;
    let extremes: [(&str, IsBetter); 2] = [("max", f64::gt), ("min", f64::lt)];
    for (name, is_better) in extremes {
        let function = lua.create_function(move |lua, args: MultiValue| {
            let mut best = arguments::number(lua, &args, 0)?;
            for at in 1..args.len() {
                let number = arguments::number(lua, &args, at)?;
                if is_better(&number, &best) {
                    best = number;
                }
            }
            Ok(best)
        })?;
        math.raw_set(name, function)?;
    }
    Ok(())
}

/// Replaces `math.random` and `math.randomseed` by the generator of C's `lrand48`.
fn install_random(lua: &Lua, math: &Table, state: &Rc<State>) -> Result<()> {
    let of_seed = Rc::clone(state);
    let randomseed = lua.create_function(move |lua, args: MultiValue| {
        let number = arguments::number(lua, &args, 0)?;
        let before = of_seed.random.get();
        of_seed
            .unseeded
            .set(of_seed.unseeded.get().or(Some(before)));
        let seed = super::number::truncate(number) as u32;
        of_seed.random.set(u64::from(seed) << 16 | 0x330e);
        Ok(())
    })?;
    math.raw_set("randomseed", randomseed)?;
    let state = Rc::clone(state);
    let random = lua.create_function(move |lua, args: MultiValue| {
        let next = state
            .random
            .get()
            .wrapping_mul(0x5_deec_e66d)
            .wrapping_add(11);
        let next = next & 0xffff_ffff_ffff;
        state.random.set(next);
        let most = i64::from(i32::MAX);
        let drawn = ((next >> 17) as i64 % most) as f64 / most as f64;
        // The bounds have 32 bits, as in Lua.
        let bound = |at| arguments::integer(lua, &args, at).map(|bound| bound as i32);
        let (low, high) = match args.len() {
            0 => return Ok(drawn),
            1 => (1, bound(0)?),
            2 => (bound(0)?, bound(1)?),
            _ => return Err(arguments::error(lua, "wrong number of arguments")),
        };
        if low > high {
            return Err(arguments::bad_argument(
                lua,
                args.len(),
                "interval is empty",
            ));
        }
        let count = high.wrapping_sub(low).wrapping_add(1);
        Ok((drawn * f64::from(count)).floor() + f64::from(low))
    })?;
    math.raw_set("random", random)
}

/// The table `redis`, without `call` and `pcall`, which belong to a script.
fn redis_table(lua: &Lua, state: &Rc<State>) -> Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in [
        ("LOG_DEBUG", 0.0),
        ("LOG_VERBOSE", 1.0),
        ("LOG_NOTICE", 2.0),
        ("LOG_WARNING", 3.0),
        ("REPL_NONE", 0.0),
        ("REPL_AOF", 1.0),
        ("REPL_REPLICA", 2.0),
        ("REPL_SLAVE", 2.0),
        ("REPL_ALL", 3.0),
        // The version whose scripts these are.
        ("REDIS_VERSION_NUM", f64::from(0x0007_000f)),
    ] {
        table.raw_set(name, value)?;
    }
    table.raw_set("REDIS_VERSION", "7.0.15")?;
    let sha1hex = lua.create_function(|lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(command_error("ERR wrong number of arguments"));
        }
        let text = match args.front() {
            Some(value) => lua.coerce_string(value.clone()).ok().flatten(),
            None => None,
        };
        let text = text.as_ref().map(LuaString::as_bytes);
        let text = text.as_deref().unwrap_or_default();
        super::check_room(lua, 0)?;
        lua.create_string(sha1::hex(text))
    })?;
    table.raw_set("sha1hex", sha1hex)?;
    add_replies(lua, &table)?;
    add_log(lua, &table, state)?;
    let of_version = Rc::clone(state);
    let setresp = lua.create_function(move |lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(command_error("ERR redis.setresp() requires one argument."));
        }
        of_version
            .version
            .set(match arguments::number(lua, &args, 0) {
                Ok(2.0) => Version::Resp2,
                Ok(3.0) => Version::Resp3,
                _ => return Err(command_error("ERR RESP version must be 2 or 3.")),
            });
        Ok(())
    })?;
    table.raw_set("setresp", setresp)?;
    // There are no replicas and no debugger.
    table.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    table.raw_set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let set_repl = lua.create_function(|_, flags: Value| {
        match flags
            .as_f64()
            .or(flags.as_integer().map(|flags| flags as f64))
        {
            Some(flags) if (0.0..=3.0).contains(&flags) => Ok(()),
            _ => Err(command_error(
                "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            )),
        }
    })?;
    table.raw_set("set_repl", set_repl)?;
    Ok(table)
}

/// `redis.error_reply` and `redis.status_reply`.
fn add_replies(lua: &Lua, table: &Table) -> Result<()> {
    let text_of = |args: &MultiValue| match args.front() {
        Some(Value::String(text)) if args.len() == 1 => Some(until_nul(&text.as_bytes()).to_vec()),
        _ => None,
    };
    let wrong = "ERR wrong number or type of arguments";
    let error_reply = lua.create_function(move |lua, args: MultiValue| {
        let Some(text) = text_of(&args) else {
            return replies::error_table(lua, wrong.as_bytes());
        };
        let text = text.strip_prefix(b"-").unwrap_or(&text);
        let text = trimmed(text);
        // The first word is the code, if there are several.
        let line = match memchr::memchr(b' ', text) {
            Some(_) => text.to_vec(),
            None => [b"ERR ", text].concat(),
        };
        let table = lua.create_table()?;
        table.raw_set("err", lua.create_string(line)?)?;
        Ok(table)
    })?;
    table.raw_set("error_reply", error_reply)?;
    let status_reply = lua.create_function(move |lua, args: MultiValue| {
        let Some(text) = text_of(&args) else {
            return replies::error_table(lua, wrong.as_bytes());
        };
        let table = lua.create_table()?;
        table.raw_set("ok", lua.create_string(text)?)?;
        Ok(table)
    })?;
    table.raw_set("status_reply", status_reply)
}

/// `redis.log`.
fn add_log(lua: &Lua, table: &Table, state: &Rc<State>) -> Result<()> {
    let state = Rc::clone(state);
    let log = lua.create_function(move |lua, args: MultiValue| {
        if args.len() < 2 {
            return Err(command_error(
                "ERR redis.log() requires two arguments or more.",
            ));
        }
        let level = match args.front() {
            Some(Value::Integer(level)) => *level,
            Some(Value::Number(level)) => *level as i64,
            _ => {
                return Err(command_error(
                    "ERR First argument must be a number (log level).",
                ));
            }
        };
        if !(0..=3).contains(&level) {
            return Err(command_error("ERR Invalid debug level."));
        }
        if state.logged.get() >= MAX_LOGGED {
            return Ok(());
        }
        state.logged.set(state.logged.get() + 1);
        let mut line = Vec::new();
        for part in args.iter().skip(1) {
            let left = MAX_LOGGED_BYTES.saturating_sub(line.len());
            if left == 0 {
                break;
            }
            if let Some(text) = lua.coerce_string(part.clone())? {
                let text = text.as_bytes();
                if !line.is_empty() {
                    line.push(b' ');
                }
                line.extend_from_slice(&text[..text.len().min(left)]);
            }
        }
        line.truncate(MAX_LOGGED_BYTES);
        let line = line.escape_ascii();
        match level {
            0 => tracing::trace!("script: {line}"),
            1 => tracing::debug!("script: {line}"),
            2 => tracing::info!("script: {line}"),
            _ => tracing::warn!("script: {line}"),
        }
        Ok(())
    })?;
    table.raw_set("log", log)
}
