//! A strict parser of Prometheus' text format and of OpenMetrics, written from their
//! specifications: it refuses what a scraper might tolerate.

use std::collections::{BTreeMap, HashSet};

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The families in the order of the page.
    pub families: Vec<MetricFamily>,
}

/// A family of metrics.
#[derive(Debug)]
pub struct MetricFamily {
    /// Its name, in OpenMetrics without `_total`.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: String,
    /// The values by series: name and labels, such as `hits_total{command="get"}`.
    pub samples: BTreeMap<String, f64>,
}

impl Exposition {
    /// Parses a page; `is_open` for OpenMetrics.
    ///
    /// # Errors
    ///
    /// The first line that breaks a rule, with the rule.
    pub fn parse(text: &str, is_open: bool) -> Result<Self, String> {
        let mut page = Self::default();
        let mut helped: Option<&str> = None;
        let end = if is_open { "# EOF\n" } else { "\n" };
        if !text.ends_with(end) {
            return Err(format!("the page does not end with {end:?}"));
        }
        for line in text.lines().filter(|line| *line != "# EOF") {
            let parsed = if let Some(help) = line.strip_prefix("# HELP ") {
                helped = help.split(' ').next();
                help.split_once(' ').map(drop).ok_or("no text of help")
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                page.begin(kind, helped.take())
            } else {
                page.add(line, is_open)
            };
            parsed.map_err(|rule| format!("{line}: {rule}"))?;
        }
        Ok(page)
    }

    /// The value of a series, written as on the page.
    #[must_use]
    pub fn value(&self, series: &str) -> Option<f64> {
        let families = self.families.iter();
        families
            .filter_map(|family| family.samples.get(series))
            .next()
            .copied()
    }

    /// All series of counters with their values.
    pub fn counters(&self) -> impl Iterator<Item = (&str, f64)> {
        let counters = self.families.iter().filter(|one| one.kind == "counter");
        counters.flat_map(|one| one.samples.iter().map(|(name, value)| (&**name, *value)))
    }

    fn begin(&mut self, text: &str, helped: Option<&str>) -> Result<(), &'static str> {
        let (name, kind) = text.split_once(' ').ok_or("a type has two words")?;
        if helped != Some(name) {
            return Err("no help precedes the type");
        }
        if !matches!(kind, "counter" | "gauge") {
            return Err("unknown type");
        }
        if self.families.iter().any(|family| family.name == name) {
            return Err("a family occurs twice");
        }
        self.families.push(MetricFamily {
            name: name.to_owned(),
            kind: kind.to_owned(),
            samples: BTreeMap::new(),
        });
        Ok(())
    }

    fn add(&mut self, line: &str, is_open: bool) -> Result<(), &'static str> {
        let family = self.families.last_mut().ok_or("no family")?;
        let (series, value) = line.rsplit_once(' ').ok_or("a sample has a value")?;
        let (name, labels) = match series.split_once('{') {
            None => (series, ""),
            Some((name, rest)) => (name, rest.strip_suffix('}').ok_or("no brace")?),
        };
        let is_counter = family.kind == "counter";
        let expected = match is_open && is_counter {
            true => format!("{}_total", family.name),
            false => family.name.clone(),
        };
        if name != expected || is_counter != name.ends_with("_total") {
            return Err("not the name of its family, or `_total` where it does not belong");
        }
        if !is_name(name) || !labels.is_empty() && !are_labels(labels) {
            return Err("malformed name or labels");
        }
        let value: f64 = value.parse().map_err(|_| "the value is no number")?;
        if is_counter && !(value >= 0.0 && value.is_finite()) {
            return Err("a counter is finite and not negative");
        }
        match family.samples.insert(series.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err("a series occurs twice"),
        }
    }
}

fn is_name(name: &str) -> bool {
    let of_words = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(of_words)
}

/// Whether a text is `name="value",…`, with `\\`, `\"` and `\n` as the only escapes.
fn are_labels(text: &str) -> bool {
    let mut names = HashSet::new();
    let mut rest = text;
    loop {
        let Some((name, quoted)) = rest.split_once("=\"") else {
            return false;
        };
        if !is_name(name) || !names.insert(name) {
            return false;
        }
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, '\\' | '"' | 'n')) => {}
                    _ => return false,
                },
                Some(_) => {}
                None => return false,
            }
        };
        match &quoted[end + 1..] {
            "" => return true,
            more => match more.strip_prefix(',') {
                Some(more) => rest = more,
                None => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"c\\\"\"} 1\n";

    #[test]
    fn a_right_page_is_read() {
        let page = Exposition::parse(PAGE, false).unwrap();
        assert_eq!(page.value(r#"a_total{b="c\""}"#), Some(1.0));
        assert_eq!(page.counters().count(), 1);
        let open = "# HELP a A.\n# TYPE a counter\na_total 1\n# EOF\n";
        assert_eq!(Exposition::parse(open, true).unwrap().families[0].name, "a");
    }

    #[test]
    fn each_fault_is_found() {
        for (from, to) in [
            (" 1\n", " 1"),
            (" 1\n", " x\n"),
            (" 1\n", " -1\n"),
            (" counter", " histogram"),
            ("# HELP a_total A.\n", ""),
            ("a_total{", "a{"),
            ("a_total{", "b_total{"),
            ("{b=", "{1="),
            ("c\\\"", "c\""),
            ("c\\\"", "c\\t"),
            ("}", ",b=\"d\"}"),
            ("}", ""),
            ("counter\n", "gauge\n"),
        ] {
            assert!(PAGE.contains(from), "{from}");
            let page = PAGE.replace(from, to);
            assert!(Exposition::parse(&page, false).is_err(), "{page}");
        }
        let twice = PAGE.to_owned() + PAGE.lines().last().unwrap() + "\n";
        assert!(Exposition::parse(&twice, false).is_err());
        assert!(Exposition::parse(&PAGE.repeat(2), false).is_err());
        assert!(Exposition::parse(PAGE, true).is_err(), "no end");
    }
}
