//! The table `bit`: operations on 32 bits, as those of Lua BitOp that Redis has.

use super::arguments::number;
use mlua::{Lua, MultiValue, Result, Table, Value};

type Combine = fn(u32, u32) -> u32;
type Change = fn(u32) -> u32;

/// The lowest 32 bits of a number, which is rounded to an integer first: of the sum with
/// 2^52 + 2^51, whose mantissa has no fraction.
fn bits(lua: &Lua, args: &MultiValue, at: usize) -> Result<u32> {
    let sum = number(lua, args, at)? + 6_755_399_441_055_744.0;
    Ok(sum.to_bits() as u32)
}

fn result(bits: u32) -> Value {
    Value::Number(f64::from(bits as i32))
}

fn fold(lua: &Lua, args: &MultiValue, combine: Combine) -> Result<Value> {
    let first = bits(lua, args, 0)?;
    let rest = (1..args.len()).map(|at| bits(lua, args, at));
    let folded = rest
        .into_iter()
        .try_fold(first, |sum, next| Ok::<_, mlua::Error>(combine(sum, next?)));
    Ok(result(folded?))
}

fn shift(lua: &Lua, args: &MultiValue, shift: Combine) -> Result<Value> {
    let value = bits(lua, args, 0)?;
    Ok(result(shift(value, bits(lua, args, 1)? & 31)))
}

/// `tohex(x [, n])`: `n` digits, capital ones if it is negative.
fn to_hex(lua: &Lua, args: &MultiValue) -> Result<String> {
    let value = bits(lua, args, 0)?;
    let wanted = match args.get(1) {
        None => 8,
        Some(_) => bits(lua, args, 1)? as i32,
    };
    let count = (wanted.unsigned_abs() as usize).min(8);
    let digits = if wanted < 0 {
        format!("{value:08X}")
    } else {
        format!("{value:08x}")
    };
    Ok(digits[8 - count..].to_owned())
}

/// The table.
pub(super) fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let folds: [(&str, Combine); 3] = [
        ("band", |a, b| a & b),
        ("bor", |a, b| a | b),
        ("bxor", |a, b| a ^ b),
    ];
    for (name, combine) in folds {
        table.raw_set(
            name,
            lua.create_function(move |lua, args| fold(lua, &args, combine))?,
        )?;
    }
    let shifts: [(&str, Combine); 5] = [
        ("lshift", |a, n| a << n),
        ("rshift", |a, n| a >> n),
        ("arshift", |a, n| ((a as i32) >> n) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, by) in shifts {
        table.raw_set(
            name,
            lua.create_function(move |lua, args| shift(lua, &args, by))?,
        )?;
    }
    let singles: [(&str, Change); 3] = [
        ("tobit", |a| a),
        ("bnot", |a| !a),
        ("bswap", u32::swap_bytes),
    ];
    for (name, change) in singles {
        let function =
            lua.create_function(move |lua, args| Ok(result(change(bits(lua, &args, 0)?))))?;
        table.raw_set(name, function)?;
    }
    table.raw_set(
        "tohex",
        lua.create_function(|lua, args| to_hex(lua, &args))?,
    )?;
    Ok(table)
}
