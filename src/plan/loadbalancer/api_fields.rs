//! Tables of attributes, by the names that the cloud's API has for them, and their values.

use std::collections::BTreeMap;

use litemap::LiteMap;

/// Values of attributes, all as text.
pub trait FieldValues<F> {
    /// The value of an attribute; empty if there is none.
    fn text(&self, field: F) -> &str;

    /// Whether an attribute has this value.
    fn is(&self, field: F, value: &str) -> bool {
        self.text(field) == value
    }
}

impl<F: Ord> FieldValues<F> for BTreeMap<F, String> {
    fn text(&self, field: F) -> &str {
        self.get(&field).map_or("", String::as_str)
    }
}

impl<F: Ord> FieldValues<F> for LiteMap<F, String> {
    fn text(&self, field: F) -> &str {
        self.get(&field).map_or("", String::as_str)
    }
}

/// Declares the attributes of one kind of thing: the only place that spells their API names. `as` states how plans call an
/// attribute, if not by its API name. Of listeners of several protocols, `for` states those that have an attribute.
macro_rules! api_fields {
    ($(#[$type_doc:meta])* $type:ident of $protocol:ident {
        $($(#[$doc:meta])* $name:ident = $parameter:literal $(for $($only:ident)+)?,)*
    }) => {
        $crate::plan::loadbalancer::api_fields::api_fields! {
            $(#[$type_doc])* $type { $($(#[$doc])* $name = $parameter,)* }
        }

        impl $type {
            /// Protocols whose listeners have it. Only these are ever sent.
            pub const fn protocols(self) -> &'static [$protocol] {
                match self { $(Self::$name => {
                    let only: &[$protocol] = &[$($($protocol::$only),+)?];
                    if only.is_empty() { $protocol::ALL } else { only }
                })* }
            }
        }
    };
    ($(#[$type_doc:meta])* $type:ident {
        $($(#[$doc:meta])* $name:ident = $parameter:literal $(as $label:literal)?,)*
    }) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $($(#[$doc])* $name,)* }

        impl $type {
            /// Every field, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The parameter's name in requests and, apart from case, in answers.
            pub const fn parameter(self) -> &'static str {
                match self { $(Self::$name => $parameter,)* }
            }

            /// How plans call it.
            pub fn label(self) -> &'static str {
                let stated = match self { $(Self::$name => None$(.or(Some($label)))?,)* };
                stated.unwrap_or(self.parameter())
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.parameter())
            }
        }
    };
}

pub(in crate::plan) use api_fields;
