//! The table `cmsgpack`: MessagePack, as lua-cmsgpack 0.4.0 that Redis has.

use super::arguments::{bad_argument, error, integer, integer_or, string};
use super::replies::number as number_of;
use super::{ELEMENTS, check_room, new_string};
use mlua::{Error, Lua, MultiValue, Result, Table, Value};

/// How deep tables are packed; deeper ones become nil.
const MAX_DEPTH: usize = 16;

/// The most values that one call unpacks: as many fit on the stack of a function, which has 8,000.
const MAX_VALUES: usize = 7_000;

/// The table.
pub(super) fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(|lua, args| pack(lua, &args))?)?;
    let all = lua.create_function(|lua, args: MultiValue| unpack(lua, &args, 0, 0))?;
    table.raw_set("unpack", all)?;
    let unpack_one = lua.create_function(|lua, args: MultiValue| {
        let offset = integer_or(lua, &args, 1, 0)?;
        unpack(lua, &args, 1, offset)
    })?;
    table.raw_set("unpack_one", unpack_one)?;
    let unpack_limit = lua.create_function(|lua, args: MultiValue| {
        let limit = integer(lua, &args, 1)?;
        let offset = integer_or(lua, &args, 2, 0)?;
        unpack(lua, &args, limit, offset)
    })?;
    table.raw_set("unpack_limit", unpack_limit)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(table)
}

fn pack(lua: &Lua, args: &MultiValue) -> Result<mlua::LuaString> {
    if args.is_empty() {
        return Err(bad_argument(lua, 0, "MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for value in args {
        encode(lua, value, 0, &mut out)?;
    }
    new_string(lua, &out)
}

fn encode(lua: &Lua, value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    check_room(lua, out.len())?;
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            check_room(lua, out.len() + text.len())?;
            head(out, text.len(), (0xa0, 32), &[0xd9, 0xda, 0xdb]);
            out.extend_from_slice(&text);
        }
        Value::Boolean(value) => out.push(0xc2 + u8::from(*value)),
        Value::Integer(number) => encode_number(*number as f64, out),
        Value::Number(number) => encode_number(*number, out),
        Value::Table(table) if depth < MAX_DEPTH => encode_table(lua, table, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// The head of a string, array or map: one byte if it is shorter than `short.1`, otherwise the
/// first of `kinds` whose length fits; they have 1, 2 and 4 bytes, or 2 and 4.
fn head(out: &mut Vec<u8>, len: usize, short: (u8, usize), kinds: &[u8]) {
    let by_width = |width: usize| kinds[kinds.len() - width];
    match len {
        _ if len < short.1 => out.push(short.0 | len as u8),
        ..=0xff if kinds.len() == 3 => out.extend_from_slice(&[by_width(3), len as u8]),
        ..=0xffff => {
            out.push(by_width(2));
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(by_width(1));
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn encode_number(number: f64, out: &mut Vec<u8>) {
    let integer = number as i64;
    if integer as f64 != number || integer == i64::MAX {
        let single = number as f32;
        if f64::from(single) == number {
            out.push(0xca);
            return out.extend_from_slice(&single.to_be_bytes());
        }
        out.push(0xcb);
        return out.extend_from_slice(&number.to_be_bytes());
    }
    match integer {
        -32..=127 => out.push(integer as i8 as u8),
        128..=0xff => out.extend_from_slice(&[0xcc, integer as u8]),
        0x100..=0xffff => tagged(out, 0xcd, &(integer as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => tagged(out, 0xce, &(integer as u32).to_be_bytes()),
        0x1_0000_0000.. => tagged(out, 0xcf, &integer.to_be_bytes()),
        -0x80..=-33 => tagged(out, 0xd0, &(integer as i8).to_be_bytes()),
        -0x8000..=-0x81 => tagged(out, 0xd1, &(integer as i16).to_be_bytes()),
        -0x8000_0000..=-0x8001 => tagged(out, 0xd2, &(integer as i32).to_be_bytes()),
        _ => tagged(out, 0xd3, &integer.to_be_bytes()),
    }
}

fn tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

/// The number of elements if the keys are 1 to that number.
fn array_len(lua: &Lua, table: &Table) -> Result<Option<usize>> {
    let (mut count, mut most) = (0_usize, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let key = number_of(&pair?.0).unwrap_or(0.0);
        if key < 1.0 || key.fract() != 0.0 {
            return Ok(None);
        }
        count += 1;
        most = most.max(key as usize);
        if count.is_multiple_of(ELEMENTS) {
            check_room(lua, 0)?;
        }
    }
    Ok((count == most).then_some(count))
}

fn encode_table(lua: &Lua, table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    if let Some(len) = array_len(lua, table)? {
        head(out, len, (0x90, 16), &[0xdc, 0xdd]);
        for index in 1..=len {
            encode(lua, &table.raw_get(index)?, depth + 1, out)?;
        }
        return Ok(());
    }
    let mut len = 0_usize;
    for pair in table.pairs::<Value, Value>() {
        pair?;
        len += 1;
        if len.is_multiple_of(ELEMENTS) {
            check_room(lua, 0)?;
        }
    }
    head(out, len, (0x80, 16), &[0xde, 0xdf]);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        encode(lua, &key, depth + 1, out)?;
        encode(lua, &value, depth + 1, out)?;
    }
    Ok(())
}

/// Unpacks `limit` values from `offset` on, or all if both are 0. Unless all are unpacked, the next
/// offset comes first, -1 at the end.
fn unpack(lua: &Lua, args: &MultiValue, limit: i64, offset: i64) -> Result<MultiValue> {
    let text = string(lua, args, 0)?;
    let text = text.as_bytes();
    if offset < 0 || limit < 0 {
        return Err(error(
            lua,
            &format!(
                "Invalid request to unpack with offset of {} and limit of {}.",
                offset as i32, // as Redis prints it, here and below
                text.len()
            ),
        ));
    }
    if offset as usize > text.len() {
        let len = text.len();
        return Err(error(
            lua,
            &format!(
                "Start offset {} greater than input length {len}.",
                offset as i32
            ),
        ));
    }
    let wants_all = limit == 0 && offset == 0;
    let wanted = if wants_all { i64::MAX } else { limit };
    let mut reader = Reader {
        lua,
        rest: &text[offset as usize..],
    };
    let mut values = Vec::new();
    while !reader.rest.is_empty() && (values.len() as i64) < wanted {
        if values.len() == MAX_VALUES {
            return Err(error(lua, "stack overflow (in function mp_unpack_full)"));
        }
        values.push(reader.value(0)?);
    }
    if !wants_all {
        let next = match reader.rest.len() {
            0 => -1.0,
            left => (text.len() - left) as f64,
        };
        values.insert(0, Value::Number(next));
    }
    Ok(MultiValue::from_vec(values))
}

struct Reader<'t> {
    lua: &'t Lua,
    rest: &'t [u8],
}

/// How deep a packed value may nest.
const MAX_NESTING: usize = 1_000;

impl<'t> Reader<'t> {
    fn take(&mut self, len: usize) -> Result<&'t [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(error(self.lua, "Missing bytes in input."));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, width: usize) -> Result<i64> {
        let unused = 64 - 8 * width as u32;
        Ok((self.unsigned(width)? << unused).cast_signed() >> unused)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > MAX_NESTING {
            return Err(error(self.lua, "Bad data format in input."));
        }
        check_room(self.lua, 0)?;
        let tag = self.unsigned(1)? as u8;
        Ok(match tag {
            0x00..=0x7f => Value::Number(f64::from(tag)),
            0xe0..=0xff => Value::Number(f64::from(tag as i8)),
            0x80..=0x8f => self.map(usize::from(tag & 15), depth)?,
            0x90..=0x9f => self.array(usize::from(tag & 15), depth)?,
            0xa0..=0xbf => self.text(usize::from(tag & 31))?,
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Boolean(tag == 0xc3),
            0xca => Value::Number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            // 8 bytes with a sign, as in Redis.
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (tag - 0xcc))? as i64 as f64),
            0xd0..=0xd3 => Value::Number(self.signed(1 << (tag - 0xd0))? as f64),
            0xd9..=0xdb => {
                let len = self.unsigned(1 << (tag - 0xd9))? as usize;
                self.text(len)?
            }
            0xdc | 0xdd => {
                let len = self.unsigned(2 << (tag - 0xdc))? as usize;
                self.array(len, depth)?
            }
            0xde | 0xdf => {
                let len = self.unsigned(2 << (tag - 0xde))? as usize;
                self.map(len, depth)?
            }
            _ => return Err(error(self.lua, "Bad data format in input.")),
        })
    }

    fn text(&mut self, len: usize) -> Result<Value> {
        let bytes = self.take(len)?;
        Ok(Value::String(new_string(self.lua, bytes)?))
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for index in 1..=len {
            table.raw_set(index, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            match key {
                Value::Nil => return Err(Error::RuntimeError("table index is nil".into())),
                Value::Number(number) if number.is_nan() => {
                    return Err(Error::RuntimeError("table index is NaN".into()));
                }
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }
}
