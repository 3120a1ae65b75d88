//! What a lane moves between memory and its registers.

/// How bytes in memory (their number is a parameter of its own: 1, 2, or 4 for each register) and registers correspond.
pub(crate) trait Shape {
    /// The register after a load of `raw` (zero above its bytes); `old` is what it held.
    #[inline(always)]
    fn load(raw: u32, old: u32) -> u32 {
        let _ = old;
        raw
    }

    /// What a store of the register writes, in the low bytes.
    #[inline(always)]
    fn store(register: u32) -> u32 {
        register
    }
}

/// Whole dwords, as many as it takes.
pub(crate) struct Dwords;

impl Shape for Dwords {}

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident |$raw:ident, $old:ident| $load:expr, |$register:ident| $store:expr;)*) => {
        $($(#[$doc])*
        pub(crate) struct $name;

        impl Shape for $name {
            #[inline(always)]
            fn load($raw: u32, $old: u32) -> u32 {
                $load
            }

            #[inline(always)]
            fn store($register: u32) -> u32 {
                $store
            }
        })*
    };
}

parts! {
    /// A byte: zero extended, stored from bits 7:0.
    U8 |raw, _old| raw, |register| register & 0xff;
    /// A byte, sign extended.
    I8 |raw, _old| raw as i8 as u32, |register| register & 0xff;
    /// Two bytes: zero extended, stored from bits 15:0.
    U16 |raw, _old| raw, |register| register & 0xffff;
    /// Two bytes, sign extended.
    I16 |raw, _old| raw as i16 as u32, |register| register & 0xffff;
    /// A byte into the low half, zero extended; the high half stays.
    U8Low |raw, old| old & 0xffff_0000 | raw, |register| register & 0xff;
    /// A byte into the high half, zero extended, the low half stays; stored from bits 23:16.
    U8High |raw, old| old & 0xffff | raw << 16, |register| register >> 16 & 0xff;
    /// A byte into the low half, sign extended.
    I8Low |raw, old| old & 0xffff_0000 | u32::from(raw as i8 as u16), |register| register & 0xff;
    /// A byte into the high half, sign extended.
    I8High |raw, old| old & 0xffff | u32::from(raw as i8 as u16) << 16, |register| register >> 16 & 0xff;
    /// Two bytes into the low half.
    B16Low |raw, old| old & 0xffff_0000 | raw, |register| register & 0xffff;
    /// Two bytes into the high half; stored from bits 31:16.
    B16High |raw, old| old & 0xffff | raw << 16, |register| register >> 16;
}
