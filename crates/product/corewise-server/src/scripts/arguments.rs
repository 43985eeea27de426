//! The arguments of functions that scripts call, and the errors about them, with Lua's words.

use super::sandbox::PRELUDE;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Value};

/// The bytes of a text whose work takes longer than a look at the clock.
pub(super) const LONG: usize = 4 << 10;

/// Whose fault an error is: the script's position is not part of it.
#[derive(Debug)]
pub(super) struct CommandError(pub(super) Vec<u8>);

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for CommandError {}

/// An error of a command, whose code is its first word.
pub(super) fn command_error(text: impl Into<Vec<u8>>) -> Error {
    Error::external(CommandError(text.into()))
}

/// The first of those that caused an error.
pub(super) fn cause(error: &Error) -> &Error {
    let mut error = error;
    while let Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } = error {
        error = cause;
    }
    error
}

/// An error at the place in the script where the function was called, or one of the prelude that
/// calls it.
pub(super) fn error(lua: &Lua, text: &str) -> Error {
    let place = (1..4).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let is_inner = source.source.as_deref() == Some(PRELUDE) || source.what == "tail";
            (!is_inner).then(|| {
                let line = frame.current_line()?;
                Some(format!("{}:{line}: ", source.short_src?))
            })
        })
        .flatten()
    });
    Error::RuntimeError(format!("{}{text}", place.flatten().unwrap_or_default()))
}

/// The error for an argument, of which the first is number 1.
pub(super) fn bad_argument(lua: &Lua, number: usize, why: &str) -> Error {
    let names = lua.inspect_stack(0, |frame| {
        let names = frame.names();
        let is_method = names.name_what == Some("method");
        (names.name.map(std::borrow::Cow::into_owned), is_method)
    });
    let (name, is_method) = names.unwrap_or_default();
    let name = name.as_deref().unwrap_or("?");
    if is_method && number == 1 {
        return error(lua, &format!("calling '{name}' on bad self ({why})"));
    }
    let number = number.saturating_sub(usize::from(is_method));
    error(lua, &format!("bad argument #{number} to '{name}' ({why})"))
}

/// Lua's name of the type of an argument.
pub(super) fn type_of(value: Option<&Value>) -> &'static str {
    match value {
        None => "no value",
        Some(Value::Integer(_)) => "number",
        Some(Value::LightUserData(_) | Value::Error(_)) => "userdata",
        Some(value) => value.type_name(),
    }
}

pub(super) fn expected(lua: &Lua, args: &MultiValue, at: usize, what: &str) -> Error {
    let got = type_of(args.get(at));
    bad_argument(lua, at + 1, &format!("{what} expected, got {got}"))
}

/// The argument at `at`, from 0 on, which must be a string or a number.
///
/// Looks at the time before a long one is read.
pub(super) fn string(lua: &Lua, args: &MultiValue, at: usize) -> Result<LuaString> {
    match args.get(at) {
        Some(Value::String(text)) => {
            if text.as_bytes().len() > LONG {
                super::check_room(lua, 0)?;
            }
            Ok(text.clone())
        }
        Some(value @ (Value::Integer(_) | Value::Number(_))) => lua
            .coerce_string(value.clone())?
            .ok_or_else(|| expected(lua, args, at, "string")),
        _ => Err(expected(lua, args, at, "string")),
    }
}

/// The argument at `at`, which must be a number or a string that is one.
///
/// Looks at the time before a long one is read.
pub(super) fn number(lua: &Lua, args: &MultiValue, at: usize) -> Result<f64> {
    let number = match args.get(at) {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => text_number(lua, text)?,
        _ => None,
    };
    number.ok_or_else(|| expected(lua, args, at, "number"))
}

/// The number that a text is. Looks at the time before a long one is read.
pub(super) fn text_number(lua: &Lua, text: &LuaString) -> Result<Option<f64>> {
    if text.as_bytes().len() > LONG {
        super::check_room(lua, 0)?;
    }
    lua.coerce_number(Value::String(text.clone()))
}

/// As [`number`], without its fraction.
pub(super) fn integer(lua: &Lua, args: &MultiValue, at: usize) -> Result<i64> {
    Ok(super::number::truncate(number(lua, args, at)?))
}

/// As [`integer`], `default` where there is none.
pub(super) fn integer_or(lua: &Lua, args: &MultiValue, at: usize, default: i64) -> Result<i64> {
    match args.get(at) {
        None | Some(Value::Nil) => Ok(default),
        _ => integer(lua, args, at),
    }
}
