//! Tests of an application against a broker that they start: `cargo test`.

mod magnetar;

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use magnetar::Magnetar;
use pulsar::{
    consumer::Message,
    producer,
    proto::{schema, Schema},
    Consumer, ConsumerOptions, DeserializeMessage, Error, Producer, ProducerOptions, Pulsar, SubType,
    TokioExecutor,
};
use serde_json::json;
use shop::{Order, ORDER_SCHEMA};
use tokio::time::timeout;

const ARRIVES: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_millis(200);
const HOUR: Duration = Duration::from_secs(3600);
const BILL_SCHEMA: &str = r#"{"type":"record","name":"Bill","fields":[{"name":"id","type":"int"}]}"#;

/// A broker for one test, and a client of it.
struct Shop {
    client: Pulsar<TokioExecutor>,
    broker: Magnetar,
}

impl Shop {
    async fn open() -> Shop {
        let broker = Magnetar::start();
        let client = Pulsar::builder(&broker.pulsar, TokioExecutor).build().await.unwrap();
        Shop { client, broker }
    }

    async fn producer(&self, topic: &str, json: Option<&str>) -> Result<Producer<TokioExecutor>, Error> {
        let options = ProducerOptions {
            schema: json.map(json_schema),
            ..Default::default()
        };
        self.client
            .producer()
            .with_topic(topic)
            .with_options(options)
            .build()
            .await
    }

    async fn consumer<T: DeserializeMessage>(
        &self,
        topic: &str,
        json: Option<&str>,
    ) -> Consumer<T, TokioExecutor> {
        self.client
            .consumer()
            .with_topic(topic)
            .with_subscription("tests")
            .with_subscription_type(SubType::Shared)
            .with_options(ConsumerOptions {
                schema: json.map(json_schema),
                ..Default::default()
            })
            .build()
            .await
            .unwrap()
    }

    fn backlog(&self, topic: &str) -> i64 {
        let stats = self
            .broker
            .get(&format!("/admin/v2/persistent/public/default/{topic}/stats"));
        stats["subscriptions"]["tests"]["msgBacklog"].as_i64().unwrap()
    }
}

fn json_schema(definition: &str) -> Schema {
    Schema {
        name: "Order".into(),
        schema_data: definition.as_bytes().to_vec(),
        r#type: schema::Type::Json as i32,
        properties: vec![],
    }
}

async fn send(producer: &mut Producer<TokioExecutor>, text: &str, deliver_at_time: Option<i64>) {
    let message = producer::Message {
        payload: text.into(),
        deliver_at_time,
        ..Default::default()
    };
    producer.send_non_blocking(message).await.unwrap().await.unwrap();
}

async fn next<T: DeserializeMessage + 'static>(consumer: &mut Consumer<T, TokioExecutor>) -> Message<T> {
    let message = timeout(ARRIVES, consumer.try_next())
        .await
        .expect("no message came")
        .unwrap()
        .unwrap();
    consumer.ack(&message).await.unwrap();
    message
}

fn text(message: &Message<Vec<u8>>) -> String {
    String::from_utf8(message.payload.data.clone()).unwrap()
}

#[tokio::test]
async fn order_arrives_as_it_was_sent() {
    let shop = Shop::open().await;
    let mut consumer = shop.consumer::<Vec<u8>>("orders", None).await;
    send(&mut shop.producer("orders", None).await.unwrap(), "one coffee", None).await;
    assert_eq!(text(&next(&mut consumer).await), "one coffee");
}

#[tokio::test]
async fn json_order_is_read_as_a_struct() {
    let shop = Shop::open().await;
    let mut consumer = shop.consumer::<Order>("orders", Some(ORDER_SCHEMA)).await;
    let mut producer = shop.producer("orders", Some(ORDER_SCHEMA)).await.unwrap();
    let order = Order {
        id: "7".into(),
        amount: 12.5,
    };
    producer.send_non_blocking(order.clone()).await.unwrap().await.unwrap();
    assert_eq!(next(&mut consumer).await.deserialize().unwrap(), order);
}

#[tokio::test]
async fn producer_of_another_schema_is_refused() {
    let shop = Shop::open().await;
    let _first = shop.producer("orders", Some(ORDER_SCHEMA)).await.unwrap();
    let refused = shop
        .producer("orders", Some(BILL_SCHEMA))
        .await
        .err()
        .expect("it was accepted");
    assert!(format!("{refused:?}").contains("IncompatibleSchema"), "{refused:?}");
}

#[tokio::test]
async fn reminder_comes_after_an_hour() {
    let shop = Shop::open().await;
    let mut consumer = shop.consumer::<Vec<u8>>("reminders", None).await;
    // This client has no delay, only a time, and the broker moves times that clients send by as much as it is ahead.
    let due = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + HOUR;
    let mut producer = shop.producer("reminders", None).await.unwrap();
    send(&mut producer, "not paid", Some(due.as_millis() as i64)).await;
    assert!(timeout(SILENCE, consumer.try_next()).await.is_err(), "it came early");
    shop.broker.advance(HOUR);
    assert_eq!(text(&next(&mut consumer).await), "not paid");
}

#[tokio::test]
async fn producer_starts_while_the_broker_is_not_ready() {
    let shop = Shop::open().await;
    let fault = shop
        .broker
        .fault(&json!({"on": "PRODUCER", "do": "refuse", "error": "ServiceNotReady", "times": 2}));
    let mut producer = shop.producer("orders", None).await.unwrap();
    send(&mut producer, "one coffee", None).await;
    assert_eq!(shop.broker.fired(fault), 2);
}

#[tokio::test]
async fn orders_expire_after_a_week() {
    let shop = Shop::open().await;
    shop.broker
        .post("/admin/v2/namespaces/public/default/messageTTL", &json!(7 * 24 * 3600));
    let consumer = shop.consumer::<Vec<u8>>("orders", None).await;
    drop(consumer);
    send(&mut shop.producer("orders", None).await.unwrap(), "one coffee", None).await;
    assert_eq!(shop.backlog("orders"), 1);
    shop.broker.advance(8 * 24 * HOUR);
    assert_eq!(shop.backlog("orders"), 0);
}
