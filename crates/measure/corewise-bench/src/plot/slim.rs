//! Leaves out the points of a line that change nothing in its appearance.

/// A point on a canvas or in a plot.
pub(crate) type Point = (f64, f64);

/// Returns points such that all others lie within a third of a pixel of the line through them.
pub(crate) fn corners(points: &[Point]) -> Vec<Point> {
    const NEAR: f64 = 1.0 / 3.0;
    let mut kept: Vec<Point> = points.first().copied().into_iter().collect();
    let mut from = 0;
    for to in 1..points.len() {
        let near = |point: &Point| distance(*point, points[from], points[to]) <= NEAR;
        if !points[from + 1..to].iter().all(near) {
            from = to - 1;
            kept.push(points[from]);
        }
    }
    kept.extend(points.last());
    kept
}

/// Returns the distance of a point from the line from one point to another.
fn distance((x, y): Point, (x0, y0): Point, (x1, y1): Point) -> f64 {
    let (dx, dy) = (x1 - x0, y1 - y0);
    let length = dx.hypot(dy);
    if length == 0.0 {
        return (x - x0).hypot(y - y0);
    }
    ((x - x0) * dy - (y - y0) * dx).abs() / length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_corners_only() {
        let straight: Vec<Point> = (0..50)
            .map(|at| (f64::from(at), 2.0 * f64::from(at)))
            .collect();
        assert_eq!(corners(&straight), [(0.0, 0.0), (49.0, 98.0)]);
        let stairs = [
            (0.0, 0.0),
            (5.0, 0.0),
            (9.0, 0.0),
            (9.0, 5.0),
            (9.0, 9.0),
            (12.0, 9.0),
        ];
        assert_eq!(
            corners(&stairs),
            [(0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (12.0, 9.0)]
        );
        let bow: Vec<Point> = (0..=100)
            .map(|at| (f64::from(at), 40.0 * (f64::from(at) / 30.0).sin()))
            .collect();
        let kept = corners(&bow);
        assert!(kept.len() < 40, "{}", kept.len());
        for point in &bow {
            let near = kept.windows(2).any(|two| {
                (two[0].0..=two[1].0).contains(&point.0) && distance(*point, two[0], two[1]) < 0.34
            });
            assert!(near, "{point:?}");
        }
    }
}
