//! The table `cjson`, as lua-cjson 2.1.0 that Redis has.

use super::arguments::{error, integer_or, string};
use super::number::print_g;
use super::{ELEMENTS, check_room, new_string};
use mlua::{LightUserData, Lua, MultiValue, Result, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// The greatest depth that a script may choose.
const MAX_DEPTH: usize = 1_000;

/// Bytes of a text between two looks at the clock.
const PART: usize = 64 << 10;

/// What a script may choose. Every script begins with the defaults.
#[derive(Clone, Copy)]
struct Settings {
    /// Whether arrays with many holes become objects, the ratio from which there are many, and the
    /// length up to which there are none.
    sparse: (bool, usize, usize),
    encode_depth: usize,
    decode_depth: usize,
    precision: usize,
    /// Whether infinity and NaN are printed.
    prints_invalid: bool,
    reads_invalid: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse: (false, 2, 10),
            encode_depth: MAX_DEPTH,
            decode_depth: MAX_DEPTH,
            precision: 14,
            prints_invalid: false,
            reads_invalid: true,
        }
    }
}

/// The settings of the script that runs.
#[derive(Clone, Default)]
pub(super) struct Json(Rc<Cell<Settings>>);

impl Json {
    /// A script begins.
    pub(super) fn reset(&self) {
        self.0.set(Settings::default());
    }

    /// The table.
    pub(super) fn table(&self, lua: &Lua) -> Result<Table> {
        let table = lua.create_table()?;
        let json = self.clone();
        let encode = lua.create_function(move |lua, args: MultiValue| json.encode(lua, &args))?;
        table.raw_set("encode", encode)?;
        let json = self.clone();
        let decode = lua.create_function(move |lua, args: MultiValue| json.decode(lua, &args))?;
        table.raw_set("decode", decode)?;
        self.add_options(lua, &table)?;
        table.raw_set("null", Value::NULL)?;
        table.raw_set("_NAME", "cjson")?;
        table.raw_set("_VERSION", "2.1.0")?;
        Ok(table)
    }

    fn add_options(&self, lua: &Lua, table: &Table) -> Result<()> {
        type Choose = fn(&mut Settings, usize) -> usize;
        let numbers: [(&str, Choose, usize); 3] = [
            (
                "encode_max_depth",
                |all, new| choose(&mut all.encode_depth, new),
                MAX_DEPTH,
            ),
            (
                "decode_max_depth",
                |all, new| choose(&mut all.decode_depth, new),
                MAX_DEPTH,
            ),
            (
                "encode_number_precision",
                |all, new| choose(&mut all.precision, new),
                14,
            ),
        ];
        for (name, choose, most) in numbers {
            let json = self.clone();
            let function = lua.create_function(move |lua, args: MultiValue| {
                let new = integer_or(lua, &args, 0, 0)?;
                if !args.is_empty() && !(1..=most as i64).contains(&new) {
                    let why = format!("expected integer between 1 and {most}");
                    return Err(super::arguments::bad_argument(lua, 1, &why));
                }
                let mut all = json.0.get();
                let value = choose(&mut all, new as usize);
                json.0.set(all);
                Ok(value as f64)
            })?;
            table.raw_set(name, function)?;
        }
        let json = self.clone();
        let sparse = lua.create_function(move |lua, args: MultiValue| {
            let mut all = json.0.get();
            let (convert, ratio, safe) = all.sparse;
            let convert = args.front().map_or(convert, |new| truth(new) == Some(true));
            let ratio = integer_or(lua, &args, 1, ratio as i64)?.max(0) as usize;
            let safe = integer_or(lua, &args, 2, safe as i64)?.max(0) as usize;
            all.sparse = (convert, ratio, safe);
            json.0.set(all);
            Ok((convert, ratio as f64, safe as f64))
        })?;
        table.raw_set("encode_sparse_array", sparse)?;
        let json = self.clone();
        let prints = lua.create_function(move |_, new: Value| {
            let mut all = json.0.get();
            all.prints_invalid = truth(&new).unwrap_or(all.prints_invalid);
            json.0.set(all);
            Ok(all.prints_invalid)
        })?;
        table.raw_set("encode_invalid_numbers", prints)?;
        let json = self.clone();
        let reads = lua.create_function(move |_, new: Value| {
            let mut all = json.0.get();
            all.reads_invalid = truth(&new).unwrap_or(all.reads_invalid);
            json.0.set(all);
            Ok(all.reads_invalid)
        })?;
        table.raw_set("decode_invalid_numbers", reads)?;
        let keeps = lua.create_function(|_, new: Value| Ok(truth(&new).unwrap_or(true)))?;
        table.raw_set("encode_keep_buffer", keeps)
    }

    fn encode(&self, lua: &Lua, args: &MultiValue) -> Result<mlua::LuaString> {
        let Some(value) = args.front().filter(|_| args.len() == 1) else {
            return Err(super::arguments::bad_argument(
                lua,
                1,
                "expected 1 argument",
            ));
        };
        let mut writer = Writer {
            lua,
            settings: self.0.get(),
            out: Vec::new(),
        };
        writer.value(value, 0)?;
        new_string(lua, &writer.out)
    }

    fn decode(&self, lua: &Lua, args: &MultiValue) -> Result<Value> {
        if args.len() != 1 {
            return Err(super::arguments::bad_argument(
                lua,
                1,
                "expected 1 argument",
            ));
        }
        let text = string(lua, args, 0)?;
        let text = text.as_bytes();
        if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
            return Err(error(lua, "JSON parser does not support UTF-16 or UTF-32"));
        }
        let mut reader = Reader {
            lua,
            settings: self.0.get(),
            text: &text,
            at: 0,
        };
        let token = reader.token();
        let value = reader.value(token, 0)?;
        match reader.token() {
            (Token::End, _) => Ok(value),
            other => Err(reader.unexpected("the end", &other)),
        }
    }
}

/// Replaces a setting, unless `new` is 0, and returns it.
fn choose(setting: &mut usize, new: usize) -> usize {
    if new != 0 {
        *setting = new;
    }
    *setting
}

/// A truth value or the words `on` and `off`.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(value) => Some(*value),
        Value::String(word) => Some(word.as_bytes() == b"on"),
        _ => None,
    }
}

struct Writer<'l> {
    lua: &'l Lua,
    settings: Settings,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn cannot(&self, value: &Value, why: &str) -> mlua::Error {
        let kind = super::arguments::type_of(Some(value));
        error(self.lua, &format!("Cannot serialise {kind}: {why}"))
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        check_room(self.lua, self.out.len())?;
        match value {
            Value::String(text) => self.text(&text.as_bytes())?,
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(LightUserData(place)) if place.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            Value::Table(table) => self.table(table, depth + 1)?,
            other => return Err(self.cannot(other, "type not supported")),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() && !self.settings.prints_invalid {
            return Err(self.cannot(&Value::Number(number), "must not be NaN or Inf"));
        }
        self.out
            .extend_from_slice(print_g(self.settings.precision, number).as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> Result<()> {
        self.out.push(b'"');
        for part in text.chunks(PART) {
            check_room(self.lua, self.out.len())?;
            self.escaped(part);
        }
        self.out.push(b'"');
        Ok(())
    }

    fn escaped(&mut self, text: &[u8]) {
        for &byte in text {
            match byte {
                b'"' | b'\\' | b'/' => self.out.extend_from_slice(&[b'\\', byte]),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                ..0x20 | 0x7f => self
                    .out
                    .extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.out.push(byte),
            }
        }
    }

    /// The length if the table is an array: its keys are positive integers.
    fn array_len(&self, table: &Table) -> Result<Option<usize>> {
        let (mut count, mut most, mut is_array) = (0_usize, 0_i32, true);
        for pair in table.pairs::<Value, Value>() {
            let key = super::replies::number(&pair?.0).unwrap_or(0.0);
            is_array &= key >= 1.0 && key.fract() == 0.0;
            count += 1;
            if count.is_multiple_of(ELEMENTS) {
                check_room(self.lua, self.out.len())?;
            }
            // The length has 32 bits in lua-cjson, which C makes negative for a greater key.
            if key > f64::from(most) {
                most = i32::try_from(key as i64).unwrap_or(i32::MIN);
            }
        }
        let most = usize::try_from(most).unwrap_or(0);
        if !is_array || most == 0 {
            return Ok(None);
        }
        let (converts, ratio, safe) = self.settings.sparse;
        if ratio > 0 && most > count.saturating_mul(ratio) && most > safe {
            if !converts {
                return Err(self.cannot(&Value::Table(table.clone()), "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(most))
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if depth > self.settings.encode_depth {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(error(self.lua, &text));
        }
        if let Some(len) = self.array_len(table)? {
            self.out.push(b'[');
            for index in 1..=len {
                if index > 1 {
                    self.out.push(b',');
                }
                self.value(&table.raw_get(index)?, depth)?;
            }
            self.out.push(b']');
            return Ok(());
        }
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match &key {
                Value::String(text) => self.text(&text.as_bytes())?,
                key => {
                    let Some(number) = super::replies::number(key) else {
                        return Err(self.cannot(key, "table key must be a number or string"));
                    };
                    self.out.push(b'"');
                    self.number(number)?;
                    self.out.push(b'"');
                }
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Error(text) => text,
        }
    }
}

struct Reader<'t> {
    lua: &'t Lua,
    settings: Settings,
    text: &'t [u8],
    at: usize,
}

/// A token, and where it begins.
type Placed = (Token, usize);

impl Reader<'_> {
    fn unexpected(&self, expected: &str, (token, at): &Placed) -> mlua::Error {
        let (found, at) = (token.name(), at + 1);
        let text = format!("Expected {expected} but found {found} at character {at}");
        error(self.lua, &text)
    }

    fn token(&mut self) -> Placed {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&byte) = self.text.get(start) else {
            return (Token::End, start);
        };
        let single = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.text_token(),
            _ => return (self.word_token(), start),
        };
        self.at += 1;
        (single, start)
    }

    fn word_token(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        match read_number(rest).filter(|_| rest.first() != Some(&b'.')) {
            Some((number, len, is_valid)) if is_valid || self.settings.reads_invalid => {
                self.at += len;
                Token::Number(number)
            }
            None if rest.first() != Some(&b'-') => Token::Error("invalid token"),
            _ => Token::Error("invalid number"),
        }
    }

    fn text_token(&mut self) -> Placed {
        let start = self.at;
        let mut out = Vec::new();
        let mut at = start + 1;
        loop {
            match self.text.get(at) {
                None => return (Token::Error("unexpected end of string"), at),
                Some(b'"') => break,
                Some(b'\\') => match self.escaped(at, &mut out) {
                    Ok(next) => at = next,
                    Err(text) => return (Token::Error(text), at),
                },
                Some(&byte) => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        (Token::Text(out), start)
    }

    /// Reads what stands for a character behind the backslash at `at`, and returns where it ends.
    fn escaped(&self, at: usize, out: &mut Vec<u8>) -> std::result::Result<usize, &'static str> {
        let byte = match self.text.get(at + 1) {
            Some(b'b') => 0x08,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 0x0c,
            Some(b'r') => b'\r',
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'u') => {
                let wrong = "invalid unicode escape code";
                let unit = |at: usize| {
                    let digits = self.text.get(at + 2..at + 6)?;
                    let digits = std::str::from_utf8(digits).ok()?;
                    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
                };
                let first = unit(at).ok_or(wrong)?;
                let (code, end) = match first {
                    0xd800..0xdc00 if self.text.get(at + 6..at + 8) == Some(b"\\u") => {
                        let second = unit(at + 6).filter(|unit| (0xdc00..0xe000).contains(unit));
                        let second = second.ok_or(wrong)?;
                        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        (code, at + 12)
                    }
                    first => (first, at + 6),
                };
                let code = char::from_u32(code).ok_or(wrong)?;
                out.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(end);
            }
            _ => return Err("invalid escape code"),
        };
        out.push(byte);
        Ok(at + 2)
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        if depth >= self.settings.decode_depth {
            let (depth, at) = (depth + 1, self.at);
            let text = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(error(self.lua, &text));
        }
        Ok(depth + 1)
    }

    fn value(&mut self, token: Placed, depth: usize) -> Result<Value> {
        check_room(self.lua, 0)?;
        Ok(match token.0 {
            Token::Text(text) => Value::String(new_string(self.lua, &text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ObjectBegin => self.object(depth)?,
            Token::ArrayBegin => self.array(depth)?,
            _ => return Err(self.unexpected("value", &token)),
        })
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        let depth = self.deeper(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if token.0 == Token::ArrayEnd {
            return Ok(Value::Table(table));
        }
        for index in 1_usize.. {
            let value = self.value(token, depth)?;
            table.raw_set(index, value)?;
            match self.token() {
                (Token::ArrayEnd, _) => break,
                (Token::Comma, _) => token = self.token(),
                other => return Err(self.unexpected("comma or array end", &other)),
            }
        }
        Ok(Value::Table(table))
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let depth = self.deeper(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if token.0 == Token::ObjectEnd {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::Text(key) = &token.0 else {
                return Err(self.unexpected("object key string", &token));
            };
            let key = new_string(self.lua, key)?;
            match self.token() {
                (Token::Colon, _) => {}
                other => return Err(self.unexpected("colon", &other)),
            }
            let next = self.token();
            let value = self.value(next, depth)?;
            table.raw_set(key, value)?;
            match self.token() {
                (Token::ObjectEnd, _) => return Ok(Value::Table(table)),
                (Token::Comma, _) => token = self.token(),
                other => return Err(self.unexpected("comma or object end", &other)),
            }
        }
    }
}

/// The number at the start of the text as C reads it, its length, and whether JSON has it.
fn read_number(text: &[u8]) -> Option<(f64, usize, bool)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let factor = if text.first() == Some(&b'-') {
        -1.0
    } else {
        1.0
    };
    let body = &text[sign..];
    for (word, value) in [
        (&b"infinity"[..], f64::INFINITY),
        (b"inf", f64::INFINITY),
        (b"nan", f64::NAN),
    ] {
        if body.len() >= word.len() && body[..word.len()].eq_ignore_ascii_case(word) {
            return Some((factor * value, sign + word.len(), false));
        }
    }
    if let [b'0', b'x' | b'X', digits @ ..] = body {
        let count = digits
            .iter()
            .take_while(|digit| digit.is_ascii_hexdigit())
            .count();
        if count > 0 {
            let digit = |digit: &u8| f64::from((*digit as char).to_digit(16).unwrap_or(0));
            let value = digits[..count]
                .iter()
                .fold(0.0, |sum, next| sum * 16.0 + digit(next));
            return Some((factor * value, sign + 2 + count, false));
        }
    }
    let digits = |from: usize| {
        body[from..]
            .iter()
            .take_while(|digit| digit.is_ascii_digit())
            .count()
    };
    let whole = digits(0);
    let mut end = whole;
    let mut fraction = 0;
    if body.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    if let Some(b'e' | b'E') = body.get(end) {
        let signed = usize::from(matches!(body.get(end + 1), Some(b'-' | b'+')));
        let power = digits((end + 1 + signed).min(body.len()));
        if power > 0 {
            end += 1 + signed + power;
        }
    }
    let number = std::str::from_utf8(&text[..sign + end])
        .ok()?
        .parse()
        .ok()?;
    let has_leading_zero = whole > 1 && body[0] == b'0';
    let is_valid = text.first() != Some(&b'+') && whole > 0 && !has_leading_zero;
    Some((number, sign + end, is_valid))
}
