//! Tables of attributes, by the names that the cloud's API has for them, and their values.

use std::collections::BTreeMap;
use std::marker::PhantomData;

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

/// An attribute of a table.
pub trait ApiField: Copy + 'static {
    /// Every attribute, in the order of the table.
    const ALL: &'static [Self];

    /// Its place in the table.
    fn index(self) -> usize;
}

/// Values of attributes that most things of a kind have: each has a place of its own, so that it is found at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTable<F>(Vec<Option<String>>, PhantomData<F>);

impl<F: ApiField> FieldTable<F> {
    /// With the value that each attribute has.
    ///
    /// # Errors
    /// The first that one of the values has.
    pub fn all<E>(value: impl Fn(F) -> Result<String, E>) -> Result<Self, E> {
        let mut values = Vec::with_capacity(F::ALL.len());
        for field in F::ALL {
            values.push(Some(value(*field)?));
        }
        Ok(Self(values, PhantomData))
    }

    /// The value of an attribute.
    pub fn get(&self, field: &F) -> Option<&String> {
        self.0[field.index()].as_ref()
    }

    /// Whether an attribute has a value.
    pub fn contains_key(&self, field: &F) -> bool {
        self.get(field).is_some()
    }

    /// Gives an attribute a value.
    pub fn insert(&mut self, field: F, value: String) {
        self.0[field.index()] = Some(value);
    }

    /// Gives an attribute this value unless it has one.
    pub fn or_insert(&mut self, field: F, value: &str) {
        self.0[field.index()].get_or_insert_with(|| value.to_owned());
    }

    /// Gives attributes the values that they have in `changes`.
    pub fn extend(&mut self, changes: &Self) {
        changes.iter().for_each(|(field, value)| self.insert(field, value.clone()));
    }

    /// The attributes that have a value, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (F, &String)> {
        F::ALL.iter().zip(&self.0).filter_map(|(field, value)| Some((*field, value.as_ref()?)))
    }
}

impl<F: ApiField> Default for FieldTable<F> {
    fn default() -> Self {
        Self(vec![None; F::ALL.len()], PhantomData)
    }
}

impl<F: ApiField> FromIterator<(F, String)> for FieldTable<F> {
    fn from_iter<I: IntoIterator<Item = (F, String)>>(values: I) -> Self {
        let mut table = Self::default();
        values.into_iter().for_each(|(field, value)| table.insert(field, value));
        table
    }
}

impl<F: ApiField, const N: usize> From<[(F, String); N]> for FieldTable<F> {
    fn from(values: [(F, String); N]) -> Self {
        values.into_iter().collect()
    }
}

impl<F: ApiField> FieldValues<F> for FieldTable<F> {
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

        impl $crate::plan::loadbalancer::api_fields::ApiField for $type {
            const ALL: &'static [Self] = Self::ALL;

            fn index(self) -> usize {
                self as usize
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
