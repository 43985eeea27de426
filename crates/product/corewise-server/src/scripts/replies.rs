//! Replies of commands as values of Lua, and values of Lua as replies.

use super::number::{print_g, truncate};
use super::sandbox::stopped;
use super::watchdog::Watchdog;
use super::{ELEMENTS, check_room, make_room, new_string};
use corewise_wire::resp::{Encoder, Version, until_nul};
use mlua::{Lua, LuaString, Result, Table, Value};

/// How deep a script's reply may nest. Redis ends at the depth of its stack, some thousands.
const MAX_DEPTH: usize = 1_000;

/// The value of a reply, an error as a table. The reply is one of this server's: it is whole.
pub(super) fn to_lua(lua: &Lua, reply: &mut &[u8]) -> Result<Value> {
    let (kind, line) = take_line(reply);
    let number = || {
        std::str::from_utf8(line)
            .ok()
            .and_then(|text| text.parse::<i64>().ok())
    };
    let len = || usize::try_from(number().unwrap_or(0)).unwrap_or(0);
    let single = |field: &str, value: Value| -> Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(field, value)?;
        Ok(Value::Table(table))
    };
    Ok(match kind {
        b'+' => single("ok", Value::String(lua.create_string(line)?))?,
        b'-' => Value::Table(error_table(lua, line)?),
        b':' => Value::Number(number().unwrap_or(0) as f64),
        b'$' | b'*' if line == b"-1" => Value::Boolean(false),
        b'$' => Value::String(new_string(lua, take(reply, len()))?),
        b'*' | b'>' => {
            let table = lua.create_table_with_capacity(len(), 0)?;
            for index in 1..=len() {
                look(lua, index)?;
                table.raw_set(index, to_lua(lua, reply)?)?;
            }
            Value::Table(table)
        }
        b'%' => {
            let map = lua.create_table_with_capacity(0, len())?;
            for index in 1..=len() {
                look(lua, index)?;
                let key = to_lua(lua, reply)?;
                map.raw_set(key, to_lua(lua, reply)?)?;
            }
            single("map", Value::Table(map))?
        }
        b'~' => {
            let set = lua.create_table_with_capacity(0, len())?;
            for index in 1..=len() {
                look(lua, index)?;
                set.raw_set(to_lua(lua, reply)?, true)?;
            }
            single("set", Value::Table(set))?
        }
        b',' => {
            let text = std::str::from_utf8(line).unwrap_or("");
            single("double", Value::Number(text.parse().unwrap_or(f64::NAN)))?
        }
        b'#' => Value::Boolean(line == b"t"),
        b'(' => single("big_number", Value::String(lua.create_string(line)?))?,
        b'=' => {
            let text = take(reply, len());
            let verbatim = lua.create_table()?;
            verbatim.raw_set("format", lua.create_string(text.get(..3).unwrap_or(b""))?)?;
            verbatim.raw_set("string", lua.create_string(text.get(4..).unwrap_or(b""))?)?;
            single("verbatim_string", Value::Table(verbatim))?
        }
        _ => Value::Nil,
    })
}

/// Reads the clock and makes room, once for [`ELEMENTS`] elements of a reply.
fn look(lua: &Lua, index: usize) -> Result<()> {
    if index.is_multiple_of(ELEMENTS) {
        check_room(lua, 0)?;
        make_room(lua, 0)?;
    }
    Ok(())
}

/// The table that stands for an error of a command.
pub(super) fn error_table(lua: &Lua, text: &[u8]) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

/// The first byte of a line, and the rest of it.
fn take_line<'r>(reply: &mut &'r [u8]) -> (u8, &'r [u8]) {
    let end = memchr::memchr(b'\r', reply).unwrap_or(reply.len());
    let (line, rest) = reply.split_at(end);
    *reply = rest.get(2..).unwrap_or(b"");
    match line {
        [kind, line @ ..] => (*kind, line),
        [] => (b'_', b""),
    }
}

fn take<'r>(reply: &mut &'r [u8], len: usize) -> &'r [u8] {
    let (text, rest) = reply.split_at(len.min(reply.len()));
    *reply = rest.get(2..).unwrap_or(b"");
    text
}

/// Why a value is no reply.
pub(super) enum Failure {
    /// The reply is longer than it may be.
    TooLong,
    /// Lua has failed.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// Prints values of Lua as replies.
pub(super) struct Printer<'o> {
    /// The version that the client has chosen.
    pub(super) version: Version,
    /// The version that the script has chosen, which decides what truth values become.
    pub(super) of_script: Version,
    pub(super) out: &'o mut Vec<u8>,
    pub(super) watchdog: &'o Watchdog,
    /// How long `out` may become.
    pub(super) most: usize,
}

impl Printer<'_> {
    fn reply(&mut self) -> Encoder<'_> {
        Encoder::new(self.version, self.out)
    }

    /// Fails if this number of bytes more makes the reply too long.
    fn check_room(&self, bytes: usize) -> std::result::Result<(), Failure> {
        if self.out.len().saturating_add(bytes) > self.most {
            return Err(Failure::TooLong);
        }
        Ok(())
    }

    /// Fails if the script must end, after each part of the elements of a table.
    fn look(&self, elements: usize) -> std::result::Result<(), Failure> {
        if elements.is_multiple_of(ELEMENTS) {
            self.watchdog.check().map_err(stopped)?;
        }
        Ok(())
    }

    /// Prints the value that is the reply.
    pub(super) fn print(&mut self, value: &Value) -> std::result::Result<(), Failure> {
        self.value(value, 0)?;
        self.check_room(0)
    }

    /// Prints one value. The reply may be longer than it may by its last line.
    fn value(&mut self, value: &Value, depth: usize) -> std::result::Result<(), Failure> {
        self.check_room(0)?;
        self.watchdog.check().map_err(stopped)?;
        match value {
            Value::String(text) => {
                let text = text.as_bytes();
                self.check_room(text.len())?;
                self.reply().bulk(&text);
            }
            Value::Integer(number) => self.reply().integer(*number),
            Value::Number(number) => self.reply().integer(truncate(*number)),
            Value::Boolean(value) => match (self.of_script, value) {
                (Version::Resp3, value) => self.reply().boolean(*value),
                (Version::Resp2, true) => self.reply().integer(1),
                (Version::Resp2, false) => self.reply().null(),
            },
            Value::Table(_) if depth >= MAX_DEPTH => {
                self.reply().error(&[b"ERR reached lua stack limit"]);
            }
            Value::Table(table) => self.table(table, depth)?,
            _ => self.reply().null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> std::result::Result<(), Failure> {
        if let Value::String(text) = table.raw_get("err")? {
            let text = text.as_bytes();
            let text = trimmed(until_nul(&text));
            self.check_room(text.len())?;
            self.reply().error(&[text]);
            return Ok(());
        }
        if let Value::String(text) = table.raw_get("ok")? {
            self.check_room(text.as_bytes().len())?;
            self.status(&text);
            return Ok(());
        }
        if let Some(number) = number(&table.raw_get("double")?) {
            self.reply().double(number);
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get("map")? {
            return self.pairs(&map, depth, true);
        }
        if let Value::Table(set) = table.raw_get("set")? {
            return self.pairs(&set, depth, false);
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            let digits = digits.as_bytes();
            self.check_room(digits.len())?;
            let digits = String::from_utf8_lossy(&digits).replace(['\r', '\n'], " ");
            self.reply().big_number(&digits);
            return Ok(());
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(format), Value::String(text)) =
                (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
        {
            let mut letters = *b"   ";
            for (letter, byte) in letters.iter_mut().zip(format.as_bytes().iter()) {
                *letter = *byte;
            }
            let text = text.as_bytes();
            self.check_room(text.len())?;
            self.reply().verbatim(letters, &text);
            return Ok(());
        }
        self.array(table, depth)
    }

    fn status(&mut self, text: &LuaString) {
        let start = self.out.len();
        self.out.push(b'+');
        self.out.extend_from_slice(until_nul(&text.as_bytes()));
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Prints the elements up to the first that is nil.
    fn array(&mut self, table: &Table, depth: usize) -> std::result::Result<(), Failure> {
        let mut len = 0_usize;
        while !matches!(table.raw_get(len + 1)?, Value::Nil) {
            len += 1;
            self.look(len)?;
        }
        self.reply().array(len);
        for index in 1..=len {
            let value: Value = table.raw_get(index)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }

    /// Prints a map, or the keys as a set.
    fn pairs(
        &mut self,
        table: &Table,
        depth: usize,
        is_map: bool,
    ) -> std::result::Result<(), Failure> {
        let mut len = 0_usize;
        for pair in table.pairs::<Value, Value>() {
            pair?;
            len += 1;
            self.look(len)?;
        }
        if is_map {
            self.reply().map(len);
        } else {
            self.reply().set(len);
        }
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            if is_map {
                self.value(&value, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// The number that a value is.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// An error text without line breaks at its end.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let end = text
        .iter()
        .rposition(|byte| !is_break(byte))
        .map_or(0, |at| at + 1);
    &text[..end]
}

/// The bytes of an argument of `redis.call`: a string, or a number as Redis prints it.
pub(super) fn argument(value: &Value) -> Option<Argument> {
    Some(match value {
        Value::String(text) => Argument::Text(text.clone()),
        Value::Integer(number) => Argument::Printed(print_g(17, *number as f64)),
        Value::Number(number) => Argument::Printed(print_g(17, *number)),
        _ => return None,
    })
}

pub(super) enum Argument {
    Text(LuaString),
    Printed(String),
}

impl Argument {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.as_bytes().len(),
            Self::Printed(text) => text.len(),
        }
    }
}
