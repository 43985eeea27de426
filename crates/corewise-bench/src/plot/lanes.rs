//! A panel with a lane for each row and one axis, for plots of small multiples.

use crate::plot::style::Looks;
use crate::plot::svg::{Anchor, Canvas, Frame, Tick, shorten};
use crate::results::RowResults;

/// Left edge of the first panel of a line; names stand on its left.
pub(crate) const LEFT: f64 = 150.0;
/// Height of a lane.
pub(crate) const LANE: f64 = 16.0;

/// Draws a panel; `mark` draws a row's values at the given height.
pub(crate) fn panel<'r>(
    canvas: &mut Canvas,
    frame: &Frame,
    (heading, ticks): (&str, &[Tick]),
    (rows, looks): (impl IntoIterator<Item = &'r RowResults>, &Looks),
    mut mark: impl FnMut(&mut Canvas, f64, &RowResults),
) {
    canvas.open("smallmultiple");
    frame.x_grid(canvas, ticks);
    frame.axes(canvas, (ticks, &[]), ("", ""));
    let above = (frame.left, frame.top - 7.0);
    canvas.text("panel", above, Anchor::Start, heading);
    for (lane, row) in rows.into_iter().enumerate() {
        let y = frame.top + LANE * (lane as f64 + 0.5);
        canvas.open(&looks.look(row).class());
        if frame.left <= LEFT {
            let class = if row.void() { "gone" } else { "label" };
            let name = shorten(&row.label, 20);
            canvas.text(class, (LEFT - 10.0, y + 4.0), Anchor::End, &name);
        }
        mark(canvas, y, row);
        canvas.close();
    }
    canvas.close();
}
