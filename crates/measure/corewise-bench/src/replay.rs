//! `corewise bench replay`: measures a row of a result file again.

use crate::error::BenchError;
use crate::results::Results;
use crate::suite::Suite;
use crate::task::Task;

/// Returns the suite of a file and the tasks for a row: its cell, and its table if one is named.
pub(crate) fn tasks(row: &str) -> Result<(Suite, Vec<Task>, u64), BenchError> {
    let usage = |what: String| BenchError::Usage(format!("replay: {what}"));
    let (file, rest) = row.split_once('#').ok_or_else(|| {
        usage(format!(
            "`{row}` is not FILE#ROW, FILE#CELL or FILE#CELL#TABLE"
        ))
    })?;
    let results = Results::read(&[file])?;
    let (cell, table) =
        named(&results, rest).ok_or_else(|| usage(format!("{file} has no row `{rest}`")))?;
    let manifest = &results.files[0].manifest;
    let (suite, mut task) = Suite::task_named(&manifest.plan, &cell)
        .map_err(|what| usage(format!("the plan in {file}: {what}")))?;
    if let Some(table) = table {
        task.tables = vec![table];
    }
    Ok((suite, vec![task], manifest.seed))
}

/// Resolves a cell and a table: a row by its number from 1, a cell by its name, or a cell and one
/// of its tables.
fn named(results: &Results, text: &str) -> Option<(String, Option<String>)> {
    let plain = |table: &str| table.trim_end_matches(" (again)").to_string();
    if let Ok(number) = text.parse::<usize>() {
        let row = results.rows().find(|row| row.number == number)?;
        return Some((row.row.cell.id.clone(), Some(plain(&row.row.table))));
    }
    let (cell, table) = match text.split_once('#') {
        Some((cell, table)) => (cell, Some(plain(table))),
        None => (text, None),
    };
    let is_there = results.rows().any(|row| row.row.cell.id == cell);
    is_there.then(|| (cell.to_string(), table))
}
