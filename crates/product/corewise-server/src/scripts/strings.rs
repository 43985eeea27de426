//! `string.find`, `match`, `gmatch` and `gsub`, whose time is bounded.

use super::arguments::{bad_argument, error, integer_or, string, type_of};
use super::patterns::{Capture, Failure, Matcher, is_plain};
use super::watchdog::Watchdog;
use mlua::{Function, Lua, LuaString, MultiValue, Result, Table, Value};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Replaces the functions in Lua's table `string`.
pub(super) fn install(lua: &Lua, strings: &Table, watchdog: &Rc<Watchdog>) -> Result<()> {
    let dog = Rc::clone(watchdog);
    let find = lua.create_function(move |lua, args| search(lua, &args, &dog, true))?;
    let dog = Rc::clone(watchdog);
    let matches = lua.create_function(move |lua, args| search(lua, &args, &dog, false))?;
    let dog = Rc::clone(watchdog);
    let gmatch = lua.create_function(move |lua, args| all_matches(lua, &args, &dog))?;
    let dog = Rc::clone(watchdog);
    let gsub = lua.create_function(move |lua, args| replace(lua, &args, &dog))?;
    strings.raw_set("find", find)?;
    strings.raw_set("match", matches)?;
    strings.raw_set("gmatch", &gmatch)?;
    strings.raw_set("gfind", gmatch)?;
    strings.raw_set("gsub", gsub)
}

fn failed(lua: &Lua, failure: &Failure) -> mlua::Error {
    match failure {
        Failure::Malformed(text) => error(lua, text),
        Failure::Stopped(_) => error(lua, "the script was stopped"),
    }
}

/// The captures of a match, or the match itself if there are none and it is `or_whole`.
fn captures(
    lua: &Lua,
    matcher: &Matcher<'_>,
    text: &[u8],
    whole: &Range<usize>,
    or_whole: bool,
) -> Result<Vec<Value>> {
    let count = match matcher.captures() {
        0 if or_whole => 1,
        count => count,
    };
    let one = |index| capture(lua, matcher, text, whole, index);
    (0..count).map(one).collect()
}

fn capture(
    lua: &Lua,
    matcher: &Matcher<'_>,
    text: &[u8],
    whole: &Range<usize>,
    index: usize,
) -> Result<Value> {
    match matcher.capture(index, whole) {
        Ok(Capture::Text(range)) => Ok(Value::String(lua.create_string(&text[range])?)),
        Ok(Capture::Position(at)) => Ok(Value::Number(at as f64)),
        Err(failure) => Err(failed(lua, &failure)),
    }
}

/// `find(s, pattern [, init [, plain]])`, `match(s, pattern [, init])`.
fn search(lua: &Lua, args: &MultiValue, dog: &Watchdog, is_find: bool) -> Result<MultiValue> {
    let (text, pattern) = (string(lua, args, 0)?, string(lua, args, 1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let init = integer_or(lua, args, 2, 1)?;
    let start = match init {
        1.. => (init as usize - 1).min(text.len()),
        0 => 0,
        _ => text.len().saturating_sub(init.unsigned_abs() as usize),
    };
    let wants_plain = args
        .get(3)
        .is_some_and(|plain| !matches!(plain, Value::Nil | Value::Boolean(false)));
    let found = |range: Range<usize>, rest: Vec<Value>| {
        let ends = [(range.start + 1) as f64, range.end as f64];
        ends.into_iter().map(Value::Number).chain(rest).collect()
    };
    let nothing = || MultiValue::from_vec(vec![Value::Nil]);
    if is_find && (wants_plain || is_plain(&pattern)) {
        let at = memchr::memmem::find(&text[start..], &pattern);
        return Ok(match at.map(|at| start + at) {
            Some(at) => found(at..at + pattern.len(), Vec::new()),
            None => nothing(),
        });
    }
    let (is_anchored, body) = match &pattern[..] {
        [b'^', body @ ..] => (true, body),
        body => (false, body),
    };
    let mut matcher = Matcher::new(&text, body, dog);
    for at in start..=text.len() {
        let end = matcher
            .matches_at(at)
            .map_err(|failure| failed(lua, &failure))?;
        if let Some(end) = end {
            let caught = captures(lua, &matcher, &text, &(at..end), !is_find)?;
            return Ok(if is_find {
                found(at..end, caught)
            } else {
                MultiValue::from_vec(caught)
            });
        }
        if is_anchored {
            break;
        }
    }
    Ok(nothing())
}

/// `gmatch(s, pattern)`.
fn all_matches(lua: &Lua, args: &MultiValue, dog: &Rc<Watchdog>) -> Result<Function> {
    let (text, pattern) = (string(lua, args, 0)?, string(lua, args, 1)?);
    let (next, dog) = (Cell::new(0), Rc::clone(dog));
    lua.create_function(move |lua, ()| next_match(lua, &text, &pattern, &next, &dog))
}

fn next_match(
    lua: &Lua,
    text: &LuaString,
    pattern: &LuaString,
    next: &Cell<usize>,
    dog: &Watchdog,
) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut matcher = Matcher::new(&text, &pattern, dog);
    for at in next.get()..=text.len() {
        let end = matcher
            .matches_at(at)
            .map_err(|failure| failed(lua, &failure))?;
        if let Some(end) = end {
            next.set(if end == at { end + 1 } else { end });
            return Ok(MultiValue::from_vec(captures(
                lua,
                &matcher,
                &text,
                &(at..end),
                true,
            )?));
        }
    }
    next.set(text.len() + 1);
    Ok(MultiValue::from_vec(vec![Value::Nil]))
}

/// What `gsub` puts in the place of a match.
enum Replacement {
    Text(LuaString),
    Table(Table),
    Function(Function),
}

/// `gsub(s, pattern, replacement [, n])`.
fn replace(lua: &Lua, args: &MultiValue, dog: &Watchdog) -> Result<(LuaString, f64)> {
    let (text, pattern) = (string(lua, args, 0)?, string(lua, args, 1)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let replacement = match args.get(2) {
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => {
            Replacement::Text(string(lua, args, 2)?)
        }
        Some(Value::Table(table)) => Replacement::Table(table.clone()),
        Some(Value::Function(function)) => Replacement::Function(function.clone()),
        _ => return Err(bad_argument(lua, 3, "string/function/table expected")),
    };
    let most = integer_or(lua, args, 3, text.len() as i64 + 1)?;
    let (is_anchored, body) = match &pattern[..] {
        [b'^', body @ ..] => (true, body),
        body => (false, body),
    };
    let mut matcher = Matcher::new(&text, body, dog);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0_i64);
    while count < most {
        let end = matcher
            .matches_at(at)
            .map_err(|failure| failed(lua, &failure))?;
        if let Some(end) = end {
            count += 1;
            let whole = at..end;
            add_replacement(lua, &replacement, &matcher, &text, &whole, &mut out)?;
            super::check_room(lua, out.len())?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                out.push(text[at]);
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or(b""));
    Ok((lua.create_string(&out)?, count as f64))
}

fn add_replacement(
    lua: &Lua,
    replacement: &Replacement,
    matcher: &Matcher<'_>,
    text: &[u8],
    whole: &Range<usize>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let value = match replacement {
        Replacement::Text(template) => {
            return expand(lua, &template.as_bytes(), matcher, text, whole, out);
        }
        Replacement::Table(table) => table.get(capture(lua, matcher, text, whole, 0)?)?,
        Replacement::Function(function) => {
            let args = captures(lua, matcher, text, whole, true)?;
            function.call::<Value>(MultiValue::from_vec(args))?
        }
    };
    match value {
        Value::Nil | Value::Boolean(false) => out.extend_from_slice(&text[whole.clone()]),
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let value = lua.coerce_string(value)?;
            out.extend_from_slice(&value.map_or_else(Vec::new, |text| text.as_bytes().to_vec()));
        }
        other => {
            let kind = type_of(Some(&other));
            return Err(error(lua, &format!("invalid replacement value (a {kind})")));
        }
    }
    Ok(())
}

/// Appends the replacement, in which `%1` is the first capture.
fn expand(
    lua: &Lua,
    template: &[u8],
    matcher: &Matcher<'_>,
    text: &[u8],
    whole: &Range<usize>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut bytes = template.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.extend_from_slice(&text[whole.clone()]),
            Some(digit @ b'1'..=b'9') => match matcher.capture(usize::from(digit - b'1'), whole) {
                Ok(Capture::Text(range)) => out.extend_from_slice(&text[range]),
                Ok(Capture::Position(at)) => out.extend_from_slice(at.to_string().as_bytes()),
                Err(failure) => return Err(failed(lua, &failure)),
            },
            Some(other) => out.push(*other),
            // The zero byte behind C's strings.
            None => out.push(0),
        }
        super::check_room(lua, out.len())?;
    }
    Ok(())
}
