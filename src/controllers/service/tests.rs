//! The engine, and its first product, against a cloud.

mod lifecycle;
mod tiny_product;
