//! Text tables: columns aligned with spaces, the last one truncated or wrapped at the width of the terminal.

use super::{Style, clip, escape, width};

/// Separator between columns.
const GAP: &str = "  ";

/// Minimum width of the last column; in a narrower terminal, lines wrap.
const LAST_MIN: usize = 12;

#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    paint: Option<fn(Style, &str) -> String>,
}

impl Cell {
    /// Creates a cell and escapes its text.
    pub fn new(text: impl AsRef<str>) -> Cell {
        Cell { text: escape::text(text.as_ref()).into_owned(), paint: None }
    }

    pub fn paint(self, paint: fn(Style, &str) -> String) -> Cell {
        Cell { paint: Some(paint), ..self }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: std::fmt::Display> From<T> for Cell {
    fn from(value: T) -> Cell {
        Cell::new(value.to_string())
    }
}

impl From<&Cell> for Cell {
    fn from(cell: &Cell) -> Cell {
        cell.clone()
    }
}

/// Builds a row from cells and from values that can be displayed.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { vec![$($crate::output::Cell::from(&$value)),*] };
}
pub(crate) use cells;

/// Rows with a header. Column widths never shrink, so that a table that is printed in parts stays aligned.
#[derive(Debug)]
pub struct TextTable {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
    header_due: bool,
    indent: &'static str,
    wraps: bool,
}

impl TextTable {
    pub fn new(header: &[&str]) -> TextTable {
        let header: Vec<Cell> = header.iter().map(|text| Cell::new(text).paint(Style::dim)).collect();
        let widths = header.iter().map(Cell::width).collect();
        TextTable { header_due: !header.is_empty(), header, rows: Vec::new(), widths, indent: "", wraps: false }
    }

    /// Creates a table of `columns` columns without a header.
    pub fn bare(columns: usize) -> TextTable {
        TextTable { header: Vec::new(), rows: Vec::new(), widths: vec![0; columns], header_due: false, indent: "", wraps: false }
    }

    pub fn indent(self, indent: &'static str) -> TextTable {
        TextTable { indent, ..self }
    }

    /// Wraps the last column instead of truncating it.
    pub fn wraps(self) -> TextTable {
        TextTable { wraps: true, ..self }
    }

    pub fn row(&mut self, row: Vec<Cell>) {
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.width());
        }
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats and removes the rows since the last call.
    pub fn take(&mut self) -> String {
        let style = Style::stdout();
        let mut out = String::new();
        let header = std::mem::take(&mut self.header_due).then(|| self.header.clone());
        let rows = std::mem::take(&mut self.rows);
        for row in header.iter().chain(&rows) {
            out.push_str(&self.line(style, row));
            out.push('\n');
        }
        out
    }

    fn line(&self, style: Style, row: &[Cell]) -> String {
        let mut line = self.indent.to_owned();
        let mut used = line.len();
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let text = if last { self.fit(&cell.text, used) } else { cell.text.clone() };
            let pad = if last { 0 } else { self.widths[column].saturating_sub(cell.width()) };
            used += text.chars().count() + pad + GAP.len();
            line.push_str(&cell.paint.map_or(text.clone(), |paint| paint(style, &text)));
            if !last {
                line.extend(std::iter::repeat_n(' ', pad));
                line.push_str(GAP);
            }
        }
        line.trim_end().to_owned()
    }

    fn fit(&self, text: &str, used: usize) -> String {
        let Some(width) = width() else { return text.to_owned() };
        let room = width.saturating_sub(used).max(LAST_MIN);
        if self.wraps { wrap(text, room).join(&format!("\n{:used$}", "")) } else { clip(text, room) }
    }
}

/// Breaks a text into lines of at most `room` characters, at blanks if possible.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut remaining = room;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if remaining < room {
            if word.len() < remaining {
                word.insert(0, ' ');
            } else {
                lines.push(String::new());
                remaining = room;
            }
        }
        for c in word {
            if remaining == 0 {
                lines.push(String::new());
                remaining = room;
            }
            lines.last_mut().expect("it begins with one").push(c);
            remaining -= 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests;
