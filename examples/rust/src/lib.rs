//! The application that the tests in `tests/` exercise: an order, and how it becomes a message.

use pulsar::{producer, DeserializeMessage, Error, Payload, SerializeMessage};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub amount: f64,
}

/// The schema that the broker keeps for a topic of orders.
pub const ORDER_SCHEMA: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"id","type":"string"},{"name":"amount","type":"double"}]}"#;

impl SerializeMessage for Order {
    fn serialize_message(order: Self) -> Result<producer::Message, Error> {
        let payload = serde_json::to_vec(&order).map_err(|error| Error::Custom(error.to_string()))?;
        Ok(producer::Message {
            payload,
            ..Default::default()
        })
    }
}

impl DeserializeMessage for Order {
    type Output = Result<Order, serde_json::Error>;

    fn deserialize_message(payload: &Payload) -> Self::Output {
        serde_json::from_slice(&payload.data)
    }
}
