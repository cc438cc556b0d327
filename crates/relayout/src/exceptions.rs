//! Exception tables (the language-specific data of gcc's and clang's C++, C and Rust).

use crate::RejectReason;
use crate::bytes::{ConstantMemory, Cursor, put_uleb};
use crate::frame::Reference;

const OMIT: u8 = 0xff;
const INDIRECT: u8 = 0x80;
const PC_RELATIVE: u8 = 0x10;
const UDATA4: u8 = 0x03;

/// What happens to exceptions that pass through a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExceptionTable {
    /// By first address, without overlaps. An exception from a place in none of them ends the
    /// program.
    pub(crate) sites: Vec<Site>,
    /// The chains of actions, as they are in the file.
    actions: Vec<u8>,
    /// The types that actions refer to, from number 1 on.
    types: Vec<Option<Reference>>,
    /// What negative action numbers refer to, as it is in the file.
    filters: Vec<u8>,
    has_types: bool,
}

/// A range of code with the same handling of exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where exceptions are handled. `None`: they pass through.
    pub(crate) landing: Option<u64>,
    /// 0, or 1 more than the offset of the first action.
    pub(crate) action: u64,
}

/// One thing that is done with an exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handler {
    /// The landing pad is entered and goes on unwinding.
    Cleanup,
    /// The landing pad handles exceptions of this type; `None`: of any.
    Catch(Option<Reference>),
    /// Only exceptions of these types may pass.
    Allow(Vec<Option<Reference>>),
}

/// A signed number of variable length at a place in a slice, and the place behind it.
fn sleb_in(bytes: &[u8], mut at: usize) -> Option<(i64, usize)> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= i64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let negative = byte & 0x40 != 0 && shift + 7 < 64;
            return Some((if negative { value | -1 << (shift + 7) } else { value }, at));
        }
    }
    None
}

impl ExceptionTable {
    /// Reads the table at `at`, of the function that begins at `function`.
    pub(crate) fn read(
        memory: &dyn ConstantMemory,
        at: u64,
        function: u64,
    ) -> Result<Self, RejectReason> {
        Self::parse(memory, at, function).ok_or(RejectReason::BadUnwindInfo)
    }

    fn parse(memory: &dyn ConstantMemory, at: u64, function: u64) -> Option<Self> {
        let mut cursor = Cursor::new(memory, at);
        let landing_encoding = cursor.u8()?;
        let landing_base = match landing_encoding {
            OMIT => function,
            encoding => pointer(&mut cursor, encoding)??.address,
        };
        let type_encoding = cursor.u8()?;
        let type_base = match type_encoding {
            OMIT => None,
            _ => {
                let offset = cursor.uleb()?;
                Some(cursor.address().checked_add(offset)?)
            }
        };
        let site_encoding = cursor.u8()?;
        let size = cursor.uleb()?;
        let actions_start = cursor.address().checked_add(size)?;
        let mut sites: Vec<Site> = Vec::new();
        while cursor.address() < actions_start {
            let start = function.wrapping_add(value(&mut cursor, site_encoding)?);
            let end = start.checked_add(value(&mut cursor, site_encoding)?)?;
            let landing = value(&mut cursor, site_encoding)?;
            let landing = (landing != 0).then(|| landing_base.wrapping_add(landing));
            let action = cursor.uleb()?;
            if sites.last().is_some_and(|last| last.end > start) {
                return None;
            }
            sites.push(Site { start, end, landing, action });
        }
        let mut table = Self {
            sites,
            actions: Vec::new(),
            types: Vec::new(),
            filters: Vec::new(),
            has_types: type_base.is_some(),
        };
        let (last_type, filters) = table.read_actions(memory, actions_start)?;
        if let Some(base) = type_base {
            let size = size_of(type_encoding)?;
            for number in 1..=last_type {
                let mut cursor = Cursor::new(memory, base.checked_sub(number.checked_mul(size)?)?);
                table.types.push(pointer(&mut cursor, type_encoding)?);
            }
            table.read_filters(memory, base, &filters, type_encoding)?;
        } else if last_type > 0 || !filters.is_empty() {
            return None;
        }
        Some(table)
    }

    /// Follows all chains of actions: the highest type number and the negative numbers in them.
    fn read_actions(&mut self, memory: &dyn ConstantMemory, start: u64) -> Option<(u64, Vec<u64>)> {
        let mut pending: Vec<u64> = self
            .sites
            .iter()
            .filter_map(|site| start.checked_add(site.action.checked_sub(1)?))
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        let (mut end, mut last_type, mut filters) = (start, 0, Vec::new());
        while let Some(at) = pending.pop() {
            if at < start || !seen.insert(at) {
                continue;
            }
            let mut cursor = Cursor::new(memory, at);
            let number = cursor.sleb()?;
            let next_at = cursor.address();
            let next = cursor.sleb()?;
            end = end.max(cursor.address());
            match u64::try_from(number) {
                Ok(number) => last_type = last_type.max(number),
                Err(_) => filters.push(number.unsigned_abs()),
            }
            if next != 0 {
                pending.push(next_at.wrapping_add_signed(next));
            }
        }
        self.actions = between(memory, start, end)?;
        Some((last_type, filters))
    }

    /// Lists of type numbers behind the type table; they end with 0.
    fn read_filters(
        &mut self,
        memory: &dyn ConstantMemory,
        base: u64,
        filters: &[u64],
        encoding: u8,
    ) -> Option<()> {
        let mut end = base;
        let mut last_type = self.types.len() as u64;
        for filter in filters {
            let mut cursor = Cursor::new(memory, base.checked_add(filter.checked_sub(1)?)?);
            loop {
                match cursor.uleb()? {
                    0 => break,
                    number => last_type = last_type.max(number),
                }
            }
            end = end.max(cursor.address());
        }
        let size = size_of(encoding)?;
        for number in self.types.len() as u64 + 1..=last_type {
            let mut cursor = Cursor::new(memory, base.checked_sub(number.checked_mul(size)?)?);
            self.types.push(pointer(&mut cursor, encoding)?);
        }
        self.filters = between(memory, base, end)?;
        Some(())
    }

    /// All places where exceptions are handled.
    pub(crate) fn landings(&self) -> impl Iterator<Item = u64> + '_ {
        self.sites.iter().filter_map(|site| site.landing)
    }

    /// The site that an instruction belongs to.
    pub(crate) fn site_at(&self, address: u64) -> Option<&Site> {
        let behind = self.sites.partition_point(|site| site.start <= address);
        let site = &self.sites[behind.checked_sub(1)?];
        (address < site.end).then_some(site)
    }

    /// What a site's action does, in order. `None`: the table is damaged.
    pub(crate) fn handlers(&self, action: u64) -> Option<Vec<Handler>> {
        let mut handlers = Vec::new();
        let Some(mut at) = action.checked_sub(1) else { return Some(handlers) };
        // A chain that comes back to itself is damaged.
        while handlers.len() <= self.actions.len() {
            let (number, next_at) = sleb_in(&self.actions, usize::try_from(at).ok()?)?;
            let (next, _) = sleb_in(&self.actions, next_at)?;
            handlers.push(match u64::try_from(number) {
                Ok(0) => Handler::Cleanup,
                Ok(number) => Handler::Catch(self.type_numbered(number)?),
                Err(_) => Handler::Allow(self.filter(number.unsigned_abs())?),
            });
            if next == 0 {
                return Some(handlers);
            }
            at = (next_at as u64).checked_add_signed(next)?;
        }
        None
    }

    fn type_numbered(&self, number: u64) -> Option<Option<Reference>> {
        self.types.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }

    fn filter(&self, number: u64) -> Option<Vec<Option<Reference>>> {
        let mut allowed = Vec::new();
        let mut at = usize::try_from(number.checked_sub(1)?).ok()?;
        loop {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let byte = *self.filters.get(at)?;
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            if value == 0 {
                return Some(allowed);
            }
            allowed.push(self.type_numbered(value)?);
        }
    }

    /// The table for code elsewhere: the same actions and types, other sites.
    ///
    /// All pointers are absolute, so the result may lie anywhere. `None`: a landing pad is more
    /// than 4 GB from the others.
    pub(crate) fn encode(&self, function: u64, sites: &[Site]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let base = sites.iter().filter_map(|site| site.landing).min().map(|first| first - 1);
        match base {
            None => out.push(OMIT),
            Some(base) => {
                out.push(0);
                out.extend_from_slice(&base.to_le_bytes());
            }
        }
        let mut table = Vec::new();
        for site in sites {
            let offset = |from: u64, to: u64| u32::try_from(to.checked_sub(from)?).ok();
            table.extend_from_slice(&offset(function, site.start)?.to_le_bytes());
            table.extend_from_slice(&offset(site.start, site.end)?.to_le_bytes());
            let landing = match (site.landing, base) {
                (Some(landing), Some(base)) => offset(base, landing)?,
                _ => 0,
            };
            table.extend_from_slice(&landing.to_le_bytes());
            put_uleb(&mut table, site.action);
        }
        let mut rest = vec![UDATA4];
        put_uleb(&mut rest, table.len() as u64);
        rest.extend_from_slice(&table);
        rest.extend_from_slice(&self.actions);
        if self.has_types {
            let indirect = self.types.iter().flatten().any(|reference| reference.indirect);
            for reference in self.types.iter().rev() {
                let address = reference.map_or(0, |reference| reference.address);
                rest.extend_from_slice(&address.to_le_bytes());
            }
            out.push(if indirect { INDIRECT } else { 0 });
            put_uleb(&mut out, rest.len() as u64);
        } else {
            out.push(OMIT);
        }
        out.extend_from_slice(&rest);
        out.extend_from_slice(&self.filters);
        Some(out)
    }
}

/// The bytes from `start` to `end`. No bytes are there even where a segment ends.
fn between(memory: &dyn ConstantMemory, start: u64, end: u64) -> Option<Vec<u8>> {
    match usize::try_from(end.checked_sub(start)?).ok()? {
        0 => Some(Vec::new()),
        size => memory.constant_bytes(start, size).map(<[u8]>::to_vec),
    }
}

/// Bytes of an encoded pointer in a type table.
fn size_of(encoding: u8) -> Option<u64> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}

/// A number in the call-site table.
fn value(cursor: &mut Cursor, encoding: u8) -> Option<u64> {
    match encoding {
        0x00 | 0x04 | 0x0c => cursor.u64(),
        0x01 => cursor.uleb(),
        0x09 => cursor.sleb().map(i64::cast_unsigned),
        0x02 => cursor.u16().map(u64::from),
        0x0a => cursor.u16().map(|value| i64::from(value.cast_signed()).cast_unsigned()),
        0x03 => cursor.u32().map(u64::from),
        0x0b => cursor.u32().map(|value| i64::from(value.cast_signed()).cast_unsigned()),
        _ => None,
    }
}

/// A pointer; the inner `None` is the null pointer.
fn pointer(cursor: &mut Cursor, encoding: u8) -> Option<Option<Reference>> {
    let at = cursor.address();
    let raw = value(cursor, encoding & 0x0f)?;
    if raw == 0 {
        return Some(None);
    }
    let indirect = encoding & INDIRECT != 0;
    match encoding & 0x70 {
        PC_RELATIVE => Some(Some(Reference { address: at.wrapping_add(raw), indirect })),
        // The loader would have had to change it, if anything moved.
        0 if !cursor.is_moved() => Some(Some(Reference { address: raw, indirect })),
        _ => None,
    }
}
