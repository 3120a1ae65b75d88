//! What an operation is: the row of the table behind an [`Op`](crate::Op).

use crate::Form;

/// What the table says of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// LLVM's mnemonic without encoding suffix.
    pub name: &'static str,
    /// The shortest encoding; VOP1, VOP2 and VOPC may come as VOP3, DPP and SDWA too.
    pub form: Form,
    /// Its number there.
    pub code: u16,
}

/// Makes `Op` and its rows, so that the rows are the only place.
macro_rules! table {
    ($($name:ident $form:ident $code:literal;)*) => {
        /// An operation; named as LLVM names it, without encoding suffix.
        #[allow(non_camel_case_types, missing_docs)] // the names are the documentation
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Op { $($name),* }

        static ROWS: &[$crate::op::Row] = &[
            $($crate::op::Row { name: stringify!($name), form: $crate::Form::$form, code: $code }),*
        ];

        impl Op {
            /// All of them, in the order of the table.
            pub const ALL: &[Op] = &[$(Op::$name),*];

            /// What the table says.
            pub fn row(self) -> &'static $crate::op::Row {
                &ROWS[self as usize]
            }

            /// LLVM's mnemonic without encoding suffix.
            pub fn name(self) -> &'static str {
                self.row().name
            }
        }
    };
}
pub(crate) use table;
