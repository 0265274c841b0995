//! The pulsar-rs client against a broker: `interop PULSAR_URL ADMIN_URL [CHECK...]` runs the checks, each on a topic of its
//! own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.

use std::{
    collections::{HashMap, HashSet},
    env,
    future::Future,
    pin::Pin,
    time::{Duration, SystemTime},
};

use futures::{future::try_join_all, TryStreamExt};
use pulsar::{
    compression::{Compression, CompressionLz4},
    consumer::{ConsumerOptions, DeadLetterPolicy, InitialPosition, Message},
    producer,
    proto::{schema, Schema},
    reader::Reader,
    Consumer, ProducerOptions, Pulsar, SubType, TokioExecutor,
};
use regex::Regex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const ARRIVES: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_millis(300);

type Failure = Box<dyn std::error::Error>;
type Outcome = Result<(), Failure>;
type Taker = Consumer<Vec<u8>, TokioExecutor>;
type Check = for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>;

struct Bench {
    client: Pulsar<TokioExecutor>,
    topic: String,
    admin: String,
}

macro_rules! checks {
    ($($name:ident),*) => { [$((stringify!($name), (|bench| Box::pin($name(bench))) as Check)),*] };
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = env::args().collect();
    let run = std::process::id();
    for (name, check) in checks![
        thousand_unbatched,
        thousand_batched_and_compressed,
        cumulative_ack,
        nack,
        dead_letter,
        reader,
        seek,
        key_shared,
        failover,
        pattern,
        non_persistent,
        properties,
        read_compacted,
        schemas,
        delayed
    ] {
        if arguments.len() > 3 && !arguments[3..].iter().any(|wanted| wanted == name) {
            continue;
        }
        let client = Pulsar::builder(&arguments[1], TokioExecutor).build().await?;
        let topic = format!("persistent://public/default/rust-{run}-{name}");
        let admin = arguments[2].clone();
        match timeout(3 * ARRIVES, check(&Bench { client, topic, admin })).await {
            Ok(Ok(())) => println!("ok {name}"),
            Ok(Err(reason)) => println!("failed {name}: {}", reason.to_string().replace('\n', " ")),
            Err(_) => println!("failed {name}: it did not end"),
        }
    }
    Ok(())
}

// Short forms of the client.

fn body(number: usize) -> Vec<u8> {
    format!("message {number}").into_bytes()
}

fn expect(good: bool, reason: impl FnOnce() -> String) -> Outcome {
    if good {
        Ok(())
    } else {
        Err(reason().into())
    }
}

impl Bench {
    async fn publish(&self, first: usize, count: usize, options: ProducerOptions) -> Outcome {
        self.publish_to(&self.topic, first, count, options, |_| None).await
    }

    async fn publish_to(
        &self,
        topic: &str,
        first: usize,
        count: usize,
        options: ProducerOptions,
        key: impl Fn(usize) -> Option<String>,
    ) -> Outcome {
        let batched = options.batch_size.is_some();
        let options = ProducerOptions {
            block_queue_if_full: true,
            ..options
        };
        let mut producer = self
            .client
            .producer()
            .with_topic(topic)
            .with_options(options)
            .build()
            .await?;
        let mut receipts = Vec::new();
        for number in first..first + count {
            let message = producer::Message {
                payload: body(number),
                partition_key: key(number),
                ..Default::default()
            };
            receipts.push(producer.send_non_blocking(message).await?);
        }
        if batched {
            producer.send_batch().await?;
        }
        try_join_all(receipts).await?;
        producer.close().await?;
        Ok(())
    }

    async fn consumer(&self, kind: SubType, name: &str) -> Result<Taker, Failure> {
        Ok(self
            .client
            .consumer()
            .with_topic(&self.topic)
            .with_subscription("s")
            .with_subscription_type(kind)
            .with_consumer_name(name)
            .with_options(earliest())
            .build()
            .await?)
    }
}

fn earliest() -> ConsumerOptions {
    ConsumerOptions::default().with_initial_position(InitialPosition::Earliest)
}

async fn next(consumer: &mut Taker) -> Result<Message<Vec<u8>>, Failure> {
    timeout(ARRIVES, consumer.try_next())
        .await
        .map_err(|_| "no message came")??
        .ok_or("the stream ended".into())
}

async fn receive(consumer: &mut Taker, first: usize, count: usize) -> Outcome {
    for number in first..first + count {
        let message = next(consumer).await?;
        expect(message.payload.data == body(number), || {
            format!(
                "{:?} instead of {number}",
                String::from_utf8_lossy(&message.payload.data)
            )
        })?;
        consumer.ack(&message).await?;
    }
    Ok(())
}

async fn nothing_comes(consumer: &mut Taker) -> Outcome {
    expect(timeout(SILENCE, consumer.try_next()).await.is_err(), || {
        "an unexpected message".into()
    })
}

// Checks.

async fn thousand_unbatched(bench: &Bench) -> Outcome {
    let mut consumer = bench.consumer(SubType::Exclusive, "c").await?;
    bench.publish(0, 1000, ProducerOptions::default()).await?;
    receive(&mut consumer, 0, 1000).await?;
    nothing_comes(&mut consumer).await
}

async fn thousand_batched_and_compressed(bench: &Bench) -> Outcome {
    let mut consumer = bench.consumer(SubType::Exclusive, "c").await?;
    let compression = Some(Compression::Lz4(CompressionLz4::default()));
    let options = ProducerOptions {
        batch_size: Some(100),
        compression,
        ..Default::default()
    };
    bench.publish(0, 1000, options).await?;
    receive(&mut consumer, 0, 1000).await?;
    nothing_comes(&mut consumer).await
}

async fn cumulative_ack(bench: &Bench) -> Outcome {
    let mut consumer = bench.consumer(SubType::Exclusive, "c").await?;
    bench.publish(0, 20, ProducerOptions::default()).await?;
    for _ in 0..11 {
        next(&mut consumer).await?;
    }
    let twelfth = next(&mut consumer).await?;
    consumer.cumulative_ack(&twelfth).await?;
    consumer.close().await?;
    receive(&mut bench.consumer(SubType::Exclusive, "c").await?, 12, 8).await
}

async fn nack(bench: &Bench) -> Outcome {
    let mut consumer = bench.consumer(SubType::Shared, "c").await?;
    bench.publish(0, 3, ProducerOptions::default()).await?;
    receive(&mut consumer, 0, 1).await?;
    let second = next(&mut consumer).await?;
    consumer.nack(&second).await?;
    let mut rest = vec![next(&mut consumer).await?, next(&mut consumer).await?];
    rest.sort_by_key(|message| message.payload.data.clone());
    expect(
        rest[0].payload.data == body(1) && rest[1].payload.data == body(2),
        || "not the two that were left".into(),
    )?;
    nothing_comes(&mut consumer).await
}

async fn dead_letter(bench: &Bench) -> Outcome {
    let dead_topic = format!("{}-dead", bench.topic);
    let mut dead: Taker = bench
        .client
        .consumer()
        .with_topic(&dead_topic)
        .with_subscription("s")
        .build()
        .await?;
    let policy = DeadLetterPolicy {
        max_redeliver_count: 2,
        dead_letter_topic: dead_topic.clone(),
    };
    let mut consumer: Taker = bench
        .client
        .consumer()
        .with_topic(&bench.topic)
        .with_subscription("s")
        .with_subscription_type(SubType::Shared)
        .with_dead_letter_policy(policy)
        .build()
        .await?;
    bench.publish(0, 1, ProducerOptions::default()).await?;
    for _ in 0..2 {
        let message = next(&mut consumer).await?;
        consumer.nack(&message).await?;
    }
    tokio::select! {
        outcome = receive(&mut dead, 0, 1) => outcome,
        _ = async { loop { if let Ok(Some(message)) = consumer.try_next().await { let _ = consumer.nack(&message).await; } } } => Ok(()),
    }
}

async fn reader(bench: &Bench) -> Outcome {
    bench.publish(0, 20, ProducerOptions::default()).await?;
    let mut reader: Reader<Vec<u8>, _> = bench
        .client
        .reader()
        .with_topic(&bench.topic)
        .with_options(earliest())
        .into_reader()
        .await?;
    for number in 0..20 {
        let message = timeout(ARRIVES, reader.try_next()).await??.ok_or("the stream ended")?;
        expect(message.payload.data == body(number), || {
            format!("another message than {number}")
        })?;
    }
    Ok(())
}

/// The latest message of each key, in order; the client has no admin requests, so this is one without a library.
async fn read_compacted(bench: &Bench) -> Outcome {
    let options = ProducerOptions::default();
    bench
        .publish_to(&bench.topic, 0, 20, options, |number| Some(format!("k{}", number % 5)))
        .await?;
    let path = bench.topic.replace("://", "/");
    ask(&bench.admin, "PUT", &path).await?;
    while !ask(&bench.admin, "GET", &path).await?.contains("SUCCESS") {}
    let options = ConsumerOptions {
        read_compacted: Some(true),
        ..earliest()
    };
    let mut reader: Reader<Vec<u8>, _> = bench
        .client
        .reader()
        .with_topic(&bench.topic)
        .with_options(options)
        .into_reader()
        .await?;
    for number in 15..20 {
        let message = timeout(ARRIVES, reader.try_next()).await??.ok_or("the stream ended")?;
        expect(message.payload.data == body(number), || {
            format!("another message than {number}")
        })?;
    }
    Ok(())
}

async fn ask(admin: &str, method: &str, path: &str) -> Result<String, Failure> {
    let mut url = format!("{admin}/admin/v2/{path}/compaction");
    loop {
        let (host, path) = url
            .trim_start_matches("http://")
            .split_once('/')
            .ok_or("a URL without a path")?;
        let mut stream = TcpStream::connect(host).await?;
        let request = format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        // Another broker may have the topic.
        match answer.lines().find_map(|line| line.strip_prefix("Location: ")) {
            Some(location) => url = location.to_string(),
            None => return Ok(answer),
        }
    }
}

/// The client subscribes twice after a seek, itself and for a moment its former self, which only a shared subscription
/// allows; between the two the order is nobody's.
async fn seek(bench: &Bench) -> Outcome {
    let mut consumer = bench.consumer(SubType::Shared, "c").await?;
    bench.publish(0, 50, ProducerOptions::default()).await?;
    let mut ids = Vec::new();
    for _ in 0..50 {
        let message = next(&mut consumer).await?;
        ids.push(message.message_id().clone());
        consumer.ack(&message).await?;
    }
    consumer
        .seek(None, Some(ids[20].clone()), None, bench.client.clone())
        .await?;
    receive_all(&mut consumer, 20, 50).await?;
    consumer.seek(None, None, Some(1), bench.client.clone()).await?;
    receive_all(&mut consumer, 0, 50).await
}

async fn receive_all(consumer: &mut Taker, first: usize, end: usize) -> Outcome {
    let mut missing: HashSet<Vec<u8>> = (first..end).map(body).collect();
    while !missing.is_empty() {
        let message = next(consumer).await?;
        missing.remove(&message.payload.data);
        consumer.ack(&message).await?;
    }
    Ok(())
}

async fn key_shared(bench: &Bench) -> Outcome {
    let (keys, total) = (20, 1000);
    let mut first = bench.consumer(SubType::KeyShared, "a").await?;
    let mut second = bench.consumer(SubType::KeyShared, "b").await?;
    let key = |number: usize| Some(format!("key-{}", number % keys));
    bench
        .publish_to(&bench.topic, 0, total, ProducerOptions::default(), key)
        .await?;
    let mut got: HashMap<String, Vec<Vec<u8>>> = HashMap::new();
    let mut owners: HashMap<String, bool> = HashMap::new();
    for _ in 0..total {
        let (message, owner) = tokio::select! {
            message = next(&mut first) => { let message = message?; first.ack(&message).await?; (message, true) }
            message = next(&mut second) => { let message = message?; second.ack(&message).await?; (message, false) }
        };
        let key = message.payload.metadata.partition_key.clone().ok_or("no key")?;
        expect(*owners.entry(key.clone()).or_insert(owner) == owner, || {
            format!("{key} went to both")
        })?;
        got.entry(key).or_default().push(message.payload.data.clone());
    }
    for number in 0..total {
        let list = &got[&key(number).unwrap()];
        expect(
            list.len() == total / keys && list[number / keys] == body(number),
            || format!("{number} out of order"),
        )?;
    }
    Ok(())
}

async fn failover(bench: &Bench) -> Outcome {
    let mut first = bench.consumer(SubType::Failover, "a").await?;
    bench.publish(0, 20, ProducerOptions::default()).await?;
    receive(&mut first, 0, 10).await?;
    first.close().await?;
    receive(&mut bench.consumer(SubType::Failover, "b").await?, 10, 10).await
}

async fn pattern(bench: &Bench) -> Outcome {
    bench
        .publish_to(&format!("{}-a", bench.topic), 0, 1, ProducerOptions::default(), |_| {
            None
        })
        .await?;
    let mut consumer: Taker = bench
        .client
        .consumer()
        .with_lookup_namespace("public/default")
        .with_topic_regex(Regex::new(&format!("{}-.*", bench.topic))?)
        .with_topic_refresh(Duration::from_secs(1))
        .with_subscription("s")
        .with_options(earliest())
        .build()
        .await?;
    receive(&mut consumer, 0, 1).await?;
    bench
        .publish_to(
            &format!("{}-late", bench.topic),
            1,
            1,
            ProducerOptions::default(),
            |_| None,
        )
        .await?;
    receive(&mut consumer, 1, 1).await
}

async fn non_persistent(bench: &Bench) -> Outcome {
    let topic = bench.topic.replace("persistent://", "non-persistent://");
    let mut consumer: Taker = bench
        .client
        .consumer()
        .with_topic(&topic)
        .with_subscription("s")
        .build()
        .await?;
    bench
        .publish_to(&topic, 0, 100, ProducerOptions::default(), |_| None)
        .await?;
    receive(&mut consumer, 0, 100).await
}

async fn properties(bench: &Bench) -> Outcome {
    let mut consumer = bench.consumer(SubType::Exclusive, "c").await?;
    let mut producer = bench
        .client
        .producer()
        .with_topic(&bench.topic)
        .with_name("named")
        .build()
        .await?;
    let properties = HashMap::from([("a".to_string(), "\u{fc}".to_string())]);
    let message = producer::Message {
        payload: body(0),
        properties,
        event_time: Some(123_456_789),
        ordering_key: Some(b"order".to_vec()),
        partition_key: Some("key".into()),
        ..Default::default()
    };
    producer.send_non_blocking(message).await?.await?;
    let metadata = next(&mut consumer).await?.payload.metadata;
    expect(metadata.partition_key.as_deref() == Some("key"), || "key".into())?;
    expect(metadata.ordering_key.as_deref() == Some(b"order"), || {
        "ordering key".into()
    })?;
    expect(metadata.event_time == Some(123_456_789), || "event time".into())?;
    expect(
        metadata.properties.len() == 1 && metadata.properties[0].value == "\u{fc}",
        || "properties".into(),
    )?;
    expect(metadata.producer_name == "named", || "producer name".into())
}

fn avro(fields: &str) -> Schema {
    Schema {
        name: "Order".into(),
        schema_data: format!(r#"{{"type":"record","name":"Order","fields":[{fields}]}}"#).into_bytes(),
        r#type: schema::Type::Avro as i32,
        properties: vec![],
    }
}

async fn schemas(bench: &Bench) -> Outcome {
    let number = r#"{"name":"number","type":"int"}"#;
    let older = avro(number);
    let newer = avro(&format!(r#"{number},{{"name":"note","type":"string","default":""}}"#));
    let other = avro(&format!(r#"{number},{{"name":"missing","type":"long"}}"#));
    let with = |schema: &Schema| ProducerOptions {
        schema: Some(schema.clone()),
        ..Default::default()
    };
    bench.publish(0, 1, with(&older)).await?;
    bench.publish(1, 1, with(&newer)).await?;
    bench.publish(2, 1, with(&older)).await?;
    let refused = bench.publish(3, 1, with(&other)).await;
    expect(refused.is_err(), || "an incompatible producer was accepted".into())?;
    let options = ConsumerOptions {
        schema: Some(other),
        ..earliest()
    };
    let reader = bench
        .client
        .consumer()
        .with_topic(&bench.topic)
        .with_subscription("other")
        .with_options(options);
    let refused: Result<Taker, _> = reader.build().await;
    expect(refused.is_err(), || "an incompatible consumer was accepted".into())?;
    let mut consumer = bench.consumer(SubType::Exclusive, "c").await?;
    for version in [0u8, 1, 0] {
        let message = next(&mut consumer).await?;
        let found = message.metadata().schema_version.clone().unwrap_or_default();
        expect(found == [0, 0, 0, 0, 0, 0, 0, version], || format!("version {found:?}"))?;
        consumer.ack(&message).await?;
    }
    Ok(())
}

async fn delayed(bench: &Bench) -> Outcome {
    let mut shared = bench.consumer(SubType::Shared, "c").await?;
    let mut producer = bench.client.producer().with_topic(&bench.topic).build().await?;
    let now = SystemTime::now();
    let times = [now + Duration::from_millis(700), now + Duration::from_millis(1500)];
    for number in [1, 0] {
        producer
            .create_message()
            .with_content(body(number))
            .deliver_at(times[number])?
            .send_non_blocking()
            .await?
            .await?;
    }
    for (number, due) in times.iter().enumerate() {
        receive(&mut shared, number, 1).await?;
        // In milliseconds, as on the wire.
        let early = due.duration_since(SystemTime::now()).unwrap_or_default();
        expect(early.as_millis() == 0, || format!("message {number} is {early:?} early"))?;
    }
    nothing_comes(&mut shared).await
}
