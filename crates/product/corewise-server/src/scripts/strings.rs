//! The functions on long texts whose time is bounded: of `string`, and `table.concat`.

use super::arguments::{self, bad_argument, error, integer_or, string};
use super::patterns::{Capture, Failure, Matcher, is_plain};
use super::watchdog::Watchdog;
use super::{ELEMENTS, new_string};
use mlua::{Error, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

/// Replaces functions in Lua's table `string`, and adds to `helpers` what `prelude.lua` makes the
/// others of: `gmatch` and `gsub`, which check the arguments, `next_match` and `find_from`.
pub(super) fn install(
    lua: &Lua,
    strings: &Table,
    helpers: &Table,
    watchdog: &Rc<Watchdog>,
) -> Result<()> {
    let dog = Rc::clone(watchdog);
    let find = lua.create_function(move |lua, args| search(lua, &args, &dog, true))?;
    strings.raw_set("find", find)?;
    let dog = Rc::clone(watchdog);
    let matches = lua.create_function(move |lua, args| search(lua, &args, &dog, false))?;
    strings.raw_set("match", matches)?;
    strings.raw_set("rep", lua.create_function(|lua, args| repeat(lua, &args))?)?;
    strings.raw_set("char", lua.create_function(|lua, args| char(lua, &args))?)?;
    let native: Function = strings.raw_get("format")?;
    let format = lua.create_function(move |lua, args| format(lua, args, &native))?;
    strings.raw_set("format", format)?;
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 3] = [
        ("upper", <[u8]>::make_ascii_uppercase),
        ("lower", <[u8]>::make_ascii_lowercase),
        ("reverse", <[u8]>::reverse),
    ];
    for (name, change) in changes {
        let changed = lua.create_function(move |lua, args: MultiValue| {
            let mut text = string(lua, &args, 0)?.as_bytes().to_vec();
            change(&mut text);
            new_string(lua, &text)
        })?;
        strings.raw_set(name, changed)?;
    }
    helpers.raw_set(
        "gmatch",
        lua.create_function(|lua, args| texts(lua, &args))?,
    )?;
    let dog = Rc::clone(watchdog);
    let gsub = lua.create_function(move |lua, args| replace(lua, &args, &dog))?;
    helpers.raw_set("gsub", gsub)?;
    let dog = Rc::clone(watchdog);
    let next = lua.create_function(move |lua, args| next_match(lua, args, &dog))?;
    helpers.raw_set("next_match", next)?;
    let dog = Rc::clone(watchdog);
    let find_from = lua.create_function(move |lua, args| find_from(lua, args, &dog))?;
    helpers.raw_set("find_from", find_from)
}

fn failed(lua: &Lua, failure: &Failure) -> Error {
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
        Ok(Capture::Text(range)) => Ok(Value::String(new_string(lua, &text[range])?)),
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
    let last = if is_anchored { start } else { text.len() };
    let Some(whole) = first_match(lua, &mut matcher, start..=last)? else {
        return Ok(nothing());
    };
    let caught = captures(lua, &matcher, &text, &whole, !is_find)?;
    Ok(if is_find {
        found(whole, caught)
    } else {
        MultiValue::from_vec(caught)
    })
}

/// `rep(s, n)`.
fn repeat(lua: &Lua, args: &MultiValue) -> Result<LuaString> {
    let text = string(lua, args, 0)?;
    let count = arguments::integer(lua, args, 1)? as i32;
    let count = usize::try_from(count).unwrap_or(0);
    let text = text.as_bytes();
    let len = text.len().saturating_mul(count);
    super::check_room(lua, len)?;
    if text.is_empty() {
        return new_string(lua, b"");
    }
    new_string(lua, &text.repeat(count))
}

/// `char(...)`.
fn char(lua: &Lua, args: &MultiValue) -> Result<LuaString> {
    let byte = |at| {
        let code = arguments::integer(lua, args, at)? as i32; // as in Lua
        u8::try_from(code).map_err(|_| bad_argument(lua, at + 1, "invalid value"))
    };
    let text: Result<Vec<u8>> = (0..args.len()).map(byte).collect();
    new_string(lua, &text?)
}

/// `format(format, ...)`: Lua's own is given numbers in the place of long texts that it would read
/// without a look at the time.
fn format(lua: &Lua, mut args: MultiValue, native: &Function) -> Result<LuaString> {
    let text = string(lua, &args, 0)?;
    let text = text.as_bytes();
    for (letter, arg) in Directives(&text).zip(args.iter_mut().skip(1)) {
        let Value::String(text) = &*arg else { continue };
        if !matches!(letter, b's' | b'q') && text.as_bytes().len() > arguments::LONG {
            match arguments::text_number(lua, text)? {
                Some(number) => *arg = Value::Number(number),
                // Lua's own ends at the first that is none.
                None => break,
            }
        }
    }
    native.call(args).map_err(|failure| {
        let Error::RuntimeError(text) = arguments::cause(&failure) else {
            return failure;
        };
        // mlua appends a traceback.
        let text = text.split("\nstack traceback:").next().unwrap_or("");
        let argument = text.strip_prefix("bad argument #").and_then(|rest| {
            let (number, why) = rest.split_once(" to '?' (")?;
            Some((number.parse().ok()?, why.strip_suffix(')')?))
        });
        match argument {
            Some((number, why)) => bad_argument(lua, number, why),
            None => error(lua, text),
        }
    })
}

/// The letters of the directives of a format that have an argument.
struct Directives<'f>(&'f [u8]);

impl Iterator for Directives<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        loop {
            let at = memchr::memchr(b'%', self.0)? + 1;
            let is_letter = |byte: &u8| !b"-+ #.0123456789".contains(byte);
            let end = at + self.0[at..].iter().position(is_letter)?;
            let letter = self.0[end];
            let is_literal = end == at && letter == b'%';
            self.0 = &self.0[end + 1..];
            if !is_literal {
                return Some(letter);
            }
        }
    }
}

/// `concat(table [, separator [, first [, last]]])`.
pub(super) fn concat(lua: &Lua, args: &MultiValue) -> Result<LuaString> {
    let separator = match args.get(1) {
        None | Some(Value::Nil) => None,
        Some(_) => Some(string(lua, args, 1)?),
    };
    let separator = separator.map(|text| text.as_bytes().to_vec());
    let separator = separator.as_deref().unwrap_or_default();
    let Some(Value::Table(table)) = args.front() else {
        return Err(arguments::expected(lua, args, 0, "table"));
    };
    // Positions have 32 bits, as in Lua.
    let first = integer_or(lua, args, 2, 1)? as i32;
    let last = integer_or(lua, args, 3, table.raw_len() as i64)? as i32;
    let mut out = Vec::new();
    for index in first..=last {
        if index > first {
            out.extend_from_slice(separator);
        }
        let value: Value = table.raw_get(index)?;
        let text = match &value {
            Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value)?,
            other => {
                let kind = arguments::type_of(Some(other));
                let place = format!("at index {index} in table for 'concat'");
                return Err(error(lua, &format!("invalid value ({kind}) {place}")));
            }
        };
        let before = out.len();
        if let Some(text) = text {
            out.extend_from_slice(&text.as_bytes());
        }
        let is_long = out.len() - before > arguments::LONG || separator.len() > arguments::LONG;
        let done = index.wrapping_sub(first) as usize;
        if is_long || done.is_multiple_of(ELEMENTS) {
            super::check_room(lua, out.len())?;
        }
    }
    new_string(lua, &out)
}

/// The two texts of `gmatch(s, pattern)`.
fn texts(lua: &Lua, args: &MultiValue) -> Result<(LuaString, LuaString)> {
    Ok((string(lua, args, 0)?, string(lua, args, 1)?))
}

/// The next match from a place on: where `gmatch` goes on, and what it returns.
fn next_match(
    lua: &Lua,
    (text, pattern, from): (LuaString, LuaString, usize),
    dog: &Watchdog,
) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut matcher = Matcher::new(&text, &pattern, dog);
    let found = first_match(lua, &mut matcher, from..=text.len())?;
    let Some(whole) = found else {
        let end = Value::Number(text.len() as f64 + 1.0);
        return Ok(MultiValue::from_vec(vec![end, Value::Nil]));
    };
    let next = whole.end + usize::from(whole.is_empty());
    let mut values = captures(lua, &matcher, &text, &whole, true)?;
    values.insert(0, Value::Number(next as f64));
    Ok(MultiValue::from_vec(values))
}

/// The next match from a place on, or only there: its start, its end and its captures, or nothing.
fn find_from(
    lua: &Lua,
    (text, pattern, from, is_anchored): (LuaString, LuaString, usize, bool),
    dog: &Watchdog,
) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut matcher = Matcher::new(&text, &pattern, dog);
    let last = if is_anchored { from } else { text.len() };
    let Some(whole) = first_match(lua, &mut matcher, from..=last)? else {
        return Ok(MultiValue::new());
    };
    let ends = [whole.start as f64, whole.end as f64].map(Value::Number);
    let caught = captures(lua, &matcher, &text, &whole, true)?;
    Ok(ends.into_iter().chain(caught).collect())
}

fn first_match(
    lua: &Lua,
    matcher: &mut Matcher<'_>,
    starts: RangeInclusive<usize>,
) -> Result<Option<Range<usize>>> {
    for at in starts {
        let end = matcher.matches_at(at);
        if let Some(end) = end.map_err(|failure| failed(lua, &failure))? {
            return Ok(Some(at..end));
        }
    }
    Ok(None)
}

/// `gsub(s, pattern, replacement [, n])` if the replacement is a text; otherwise the text, the
/// pattern, the most replacements, and whether the pattern was anchored.
fn replace(lua: &Lua, args: &MultiValue, dog: &Watchdog) -> Result<MultiValue> {
    let (text, pattern) = texts(lua, args)?;
    let template = match args.get(2) {
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => {
            Some(string(lua, args, 2)?)
        }
        Some(Value::Table(_) | Value::Function(_)) => None,
        _ => return Err(bad_argument(lua, 3, "string/function/table expected")),
    };
    let most = integer_or(lua, args, 3, text.as_bytes().len() as i64 + 1)?;
    let most = i64::from(most as i32); // as in Lua, 2^32 is 0
    let pattern_bytes = pattern.as_bytes();
    let (is_anchored, body) = match &pattern_bytes[..] {
        [b'^', body @ ..] => (true, body),
        body => (false, body),
    };
    let Some(template) = template else {
        return (text, new_string(lua, body)?, most as f64, is_anchored).into_lua_multi(lua);
    };
    let text = text.as_bytes();
    let mut matcher = Matcher::new(&text, body, dog);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0_i64);
    while count < most {
        let end = matcher
            .matches_at(at)
            .map_err(|failure| failed(lua, &failure))?;
        if let Some(end) = end {
            count += 1;
            expand(
                lua,
                &template.as_bytes(),
                &matcher,
                &text,
                &(at..end),
                &mut out,
            )?;
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
    (new_string(lua, &out)?, count as f64).into_lua_multi(lua)
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
