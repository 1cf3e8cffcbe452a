//! Renders the statements of templates, and binds the names of `for` and `set`.

use super::{Eval, Outcome};
use crate::expression::syntax::Part;
use crate::expression::value::EvalValue;
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, limits};

impl<'s> Eval<'s> {
    /// Forgets the names that a template has set, before the next one.
    pub fn forget_names(&mut self) {
        self.locals.clear();
    }

    /// Renders the parts of a template.
    pub fn render(&mut self, parts: &'s [Part], out: &mut String) -> Outcome<()> {
        for part in parts {
            self.spend(1)?;
            match part {
                Part::Raw(text) => self.write(text, out)?,
                Part::Emit(node) => {
                    let value = self.eval(node)?;
                    match &value {
                        EvalValue::Text(text) => self.write(text, out)?,
                        other => {
                            let text = self.json_text(other, None)?;
                            self.write(&text, out)?;
                        }
                    }
                }
                Part::If { test, yes, no } => {
                    let branch = if self.eval(test)?.is_true() { yes } else { no };
                    self.render(branch, out)?;
                }
                Part::For { .. } => self.render_loop(part, out)?,
                Part::Set { names, value } => {
                    let value = self.eval(value)?;
                    self.bind(names, value).map_err(|fault| fault.or_at(value_offset(part)))?;
                }
                Part::Capture { name, body } => {
                    let mut text = String::new();
                    self.render(body, &mut text)?;
                    let text = self.text(&text)?;
                    self.set(name, text);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, text: &str, out: &mut String) -> Outcome<()> {
        if out.len() + text.len() > limits::OUTPUT_BYTES {
            return Err(ExpressionFault::new(
                Kind::TooLarge,
                format!("the text has more than {} MiB", limits::OUTPUT_BYTES >> 20),
            ));
        }
        self.spend_bytes(text.len())?;
        out.push_str(text);
        Ok(())
    }

    #[inline(never)]
    fn render_loop(&mut self, part: &'s Part, out: &mut String) -> Outcome<()> {
        let Part::For { names, items, filter, body, otherwise } = part else { return Ok(()) };
        let value = self.eval(items)?;
        let mut all = self.items(&value).map_err(|fault| fault.or_at(items.offset))?;
        let (base, frame_before) = (self.locals.len(), self.frame);
        self.frame = base;
        if let Some(filter) = filter {
            let mut kept = Vec::new();
            for item in all {
                self.locals.truncate(base);
                self.bind(names, item.clone()).map_err(|fault| fault.or_at(items.offset))?;
                if self.eval(filter)?.is_true() {
                    kept.push(item);
                }
            }
            all = kept;
        }
        let length = all.len();
        for (index, item) in all.into_iter().enumerate() {
            self.spend(1)?;
            self.locals.truncate(base);
            self.bind(names, item).map_err(|fault| fault.or_at(items.offset))?;
            self.loops.push((index, length));
            self.render(body, out)?;
            self.loops.pop();
        }
        self.locals.truncate(base);
        self.frame = frame_before;
        if length == 0 { self.render(otherwise, out) } else { Ok(()) }
    }

    /// Binds one name to the value, or several names to its items.
    fn bind(&mut self, names: &'s [Box<str>], value: EvalValue<'s>) -> Outcome<()> {
        if let [name] = names {
            self.set(name, value);
            return Ok(());
        }
        let items = match &value {
            EvalValue::List(list) if list.len() == names.len() => self.items(&value)?,
            other => {
                let message = format!("{} names need a list of as many items, not {}", names.len(), other.kind());
                return Err(ExpressionFault::new(Kind::Type, message));
            }
        };
        for (name, item) in names.iter().zip(items) {
            self.set(name, item);
        }
        Ok(())
    }

    fn set(&mut self, name: &'s str, value: EvalValue<'s>) {
        match self.locals[self.frame..].iter_mut().find(|(local, _)| *local == name) {
            Some(local) => local.1 = value,
            None => self.locals.push((name, value)),
        }
    }
}

fn value_offset(part: &Part) -> usize {
    match part {
        Part::Set { value, .. } => value.offset,
        _ => 0,
    }
}
