//! Macros that declare request bodies and documents. Tests generate the OpenAPI document from the declarations.

/// Declares documents, which the server writes. `as NAME` after a struct is the name of its schema, if it is not that of the
/// struct; `as TYPE` after a field is the type whose schema the field has, if it is not that of the field. A document of the form
/// `struct NAME(source: TYPE)` is made `From` the source, with an expression for each field.
macro_rules! documents {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident $(<$life:lifetime>)? $(as $schema:ident)? $(($($source:tt)*))? {
        $($body:tt)*
    })*) => {
        $($crate::http::declare::declare! {
            Serialize [$(#[$meta])*] $vis $name [$($life)?] [$($schema)? $name] ($($($source)*)?) { $($body)* }
        })*

        /// Schemas of these documents.
        #[cfg(test)]
        pub(crate) const DOCUMENTS: &[$crate::http::tests::shape::ShapeFn] =
            { use $crate::http::tests::shape::Shape as _; &[$($name::shape),*] };
    };
}

/// Declares bodies of requests, like [`documents`]; they refuse unknown fields.
macro_rules! bodies {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident $(as $schema:ident)? { $($body:tt)* })*) => {
        $($crate::http::declare::declare! {
            Deserialize [#[serde(deny_unknown_fields)] $(#[$meta])*] $vis $name [] [$($schema)? $name] () { $($body)* }
        })*

        /// Schemas of these bodies.
        #[cfg(test)]
        pub(crate) const BODIES: &[$crate::http::tests::shape::ShapeFn] =
            { use $crate::http::tests::shape::Shape as _; &[$($name::shape),*] };
    };
}

/// Declares an enum whose JSON form is a word.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident as $schema:ident {
        $($(#[$word_meta:meta])* $variant:ident / $word:literal),* $(,)?
    }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $(#[$meta])*
        $vis enum $name { $($(#[$word_meta])* #[serde(rename = $word)] $variant,)* }

        #[cfg(test)]
        impl $crate::http::tests::shape::Shape for $name {
            fn shape(schema: &mut onward_core::log::schema::Schema) -> serde_json::Value {
                let words = &[$((0, stringify!($variant), $word)),*];
                schema.enumeration(stringify!($schema), &[$(stringify!($meta)),*], words).json().clone()
            }
        }
    };
}

/// Declares one struct: the trait to derive, its attributes, name, lifetime, schema, source and fields.
macro_rules! declare {
    ($derive:ident [$($meta:tt)*] $vis:vis $name:ident [$($life:lifetime)?] [$schema:ident $($own:ident)?] () {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(as $shape:ty)?),* $(,)?
    }) => {
        #[derive(serde::$derive)]
        $($meta)*
        $vis struct $name $(<$life>)? { $($(#[$field_meta])* $field_vis $field: $type,)* }

        $crate::http::declare::declare! { @schema [$($meta)*] $name [$($life)?] $schema {
            $($(#[$field_meta])* $field: $type $(as $shape)?,)*
        } }
    };
    ($derive:ident [$($meta:tt)*] $vis:vis $name:ident [$life:lifetime] [$schema:ident $($own:ident)?] ($source:ident: $from:ty) {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(as $shape:ty)? = $value:expr,)*
    }) => {
        $crate::http::declare::declare! { $derive [$($meta)*] $vis $name [$life] [$schema] () {
            $($(#[$field_meta])* $field_vis $field: $type $(as $shape)?,)*
        } }

        impl<$life> From<$from> for $name<$life> {
            fn from($source: $from) -> $name<$life> {
                $name { $($field: $value,)* }
            }
        }
    };
    (@schema [$(#[$meta:meta])*] $name:ident [$($life:lifetime)?] $schema:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty $(as $shape:ty)?,)*
    }) => {
        #[cfg(test)]
        const _: () = {
            #[allow(unused_imports)]
            use $crate::http::tests::shape::types::*;
            use $crate::http::tests::shape::{FieldShape, Shape, object};

            impl $(<$life>)? Shape for $name $(<$life>)? {
                fn shape(schema: &mut onward_core::log::schema::Schema) -> serde_json::Value {
                    object(schema, stringify!($schema), &[$(stringify!($meta)),*], &[
                        $(FieldShape::new::<$crate::http::declare::declare!(@type $type $(as $shape)?)>(
                            stringify!($field),
                            &[$(stringify!($field_meta)),*],
                        ),)*
                    ])
                }
            }
        };
    };
    (@type $type:ty) => { $type };
    (@type $type:ty as $shape:ty) => { $shape };
}

pub(crate) use {bodies, declare, documents, words};
