//! Decodes keyboard bytes into the keys of `onward replay`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayKey {
    Next,
    Back,
    NextRecord,
    PreviousRecord,
    Far,
    FarBack,
    First,
    Last,
    Quit,
}

/// Decodes the keys of one read. Skips unknown escape sequences.
pub fn read(mut bytes: &[u8]) -> Vec<ReplayKey> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        let key = match first {
            b'l' | b' ' | b'\r' | b'\n' => Some(ReplayKey::Next),
            b'h' | b'b' | 0x7f => Some(ReplayKey::Back),
            b'j' | b'n' => Some(ReplayKey::NextRecord),
            b'k' | b'p' => Some(ReplayKey::PreviousRecord),
            b'g' => Some(ReplayKey::First),
            b'G' => Some(ReplayKey::Last),
            b'q' | 0x03 | 0x04 => Some(ReplayKey::Quit),
            0x1b => sequence(&mut bytes),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

/// Decodes the sequence after an escape; a lone escape quits.
fn sequence(bytes: &mut &[u8]) -> Option<ReplayKey> {
    let [b'[' | b'O', rest @ ..] = *bytes else {
        return bytes.is_empty().then_some(ReplayKey::Quit);
    };
    let length = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 1);
    let (sequence, rest) = rest.split_at(length);
    *bytes = rest;
    Some(match sequence {
        b"C" => ReplayKey::Next,
        b"D" => ReplayKey::Back,
        b"B" => ReplayKey::NextRecord,
        b"A" => ReplayKey::PreviousRecord,
        b"6~" => ReplayKey::Far,
        b"5~" => ReplayKey::FarBack,
        b"H" | b"1~" | b"7~" => ReplayKey::First,
        b"F" | b"4~" | b"8~" => ReplayKey::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
