package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const (
	cluster   = "standalone"
	adminWait = 60 * time.Second
	pollEvery = 50 * time.Millisecond
)

const (
	firstSchema  = `{"type":"record","name":"R","fields":[{"name":"number","type":"int"}]}`
	secondSchema = `{"type":"record","name":"R","fields":[{"name":"number","type":"int"},` +
		`{"name":"note","type":["null","string"],"default":null}]}`
	otherSchema = `{"type":"record","name":"R","fields":[{"name":"other","type":"string"}]}`
)

// The official Go admin client, a check for each group of requests. Each check works in a namespace of its own.
var adminChecks = []check{
	{"admin_clusters", administered(adminClusters)},
	{"admin_tenants", administered(adminTenants)},
	{"admin_namespaces", administered(adminNamespaces)},
	{"admin_namespace_policies", administered(adminNamespacePolicies)},
	{"admin_topics", administered(adminTopics)},
	{"admin_topic_policies", administered(adminTopicPolicies)},
	{"admin_partitioned", administered(adminPartitioned)},
	{"admin_subscriptions", administered(adminSubscriptions)},
	{"admin_expire", administered(adminExpire)},
	{"admin_reset", administered(adminReset)},
	{"admin_messages", administered(adminMessages)},
	{"admin_schemas", administered(adminSchemas)},
	{"admin_permissions", administered(adminPermissions)},
	{"admin_stats", administered(adminStats)},
	{"admin_brokers", administered(adminBrokers)},
}

// administration is what a check of the admin client works with.
type administration struct {
	*bench
	admin             pulsaradmin.Client
	tenant, namespace string
	name              utils.TopicName
}

func administered(run func(*administration)) func(*bench) {
	return func(b *bench) {
		client := must(pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: b.adminURL}))
		tenant := b.topic
		done(client.Tenants().Create(utils.TenantData{Name: tenant, AllowedClusters: []string{cluster}}))
		namespace := tenant + "/n"
		done(client.Namespaces().CreateNamespace(namespace))
		b.topic = "persistent://" + namespace + "/t"
		run(&administration{b, client, tenant, namespace, *must(utils.GetTopicName(b.topic))})
	}
}

func same(found, wanted any) { expect(found == wanted, "%v is not %v", found, wanted) }

func refused(status int, err error) {
	var refusal rest.Error
	expect(errors.As(err, &refusal), "%v instead of a refusal with %d", err, status)
	same(refusal.Code, status)
}

func refusedValue[T any](status int, _ T, err error) { refused(status, err) }

func soon(wanted string, holds func() bool) {
	deadline := time.Now().Add(adminWait)
	for !holds() {
		expect(time.Now().Before(deadline), "not within %v: %s", adminWait, wanted)
		time.Sleep(pollEvery)
	}
}

func (a *administration) namespaceName() utils.NameSpaceName {
	return *must(utils.GetNamespaceName(a.namespace))
}

func (a *administration) backlog(subscription string) int64 {
	return must(a.admin.Topics().GetStats(a.name)).Subscriptions[subscription].MsgBacklog
}

func (a *administration) send(count int) []pulsar.MessageID {
	producer := a.producer(pulsar.ProducerOptions{DisableBatching: true})
	defer producer.Close()
	return publish(producer, 0, count, nil)
}

func position(id pulsar.MessageID) utils.MessageID {
	return utils.MessageID{LedgerID: id.LedgerID(), EntryID: id.EntryID(), PartitionIndex: -1, BatchIndex: -1}
}

func adminClusters(a *administration) {
	clusters, own := a.admin.Clusters(), "west-"+a.tenant
	data := utils.ClusterData{
		Name: own, ServiceURL: "http://west:8080", BrokerServiceURL: "pulsar://west:6650",
	}
	done(clusters.Create(data))
	expect(slices.Contains(must(clusters.List()), own), "%s is not in the list", own)
	same(must(clusters.Get(own)).ServiceURL, "http://west:8080")
	refused(409, clusters.Create(data))
	data.ServiceURL = "http://west:8081"
	done(clusters.Update(data))
	same(must(clusters.Get(own)).ServiceURL, "http://west:8081")
	done(clusters.UpdatePeerClusters(own, []string{cluster}))
	same(must(clusters.GetPeerClusters(own))[0], cluster)
	domain := utils.FailureDomainData{ClusterName: own, DomainName: "d", BrokerList: []string{"a:8080"}}
	done(clusters.CreateFailureDomain(domain))
	same(must(clusters.GetFailureDomain(own, "d")).BrokerList[0], "a:8080")
	same(len(must(clusters.ListFailureDomains(own))), 1)
	done(clusters.DeleteFailureDomain(domain))
	done(clusters.Delete(own))
	_, err := clusters.Get(own)
	refused(404, err)
}

func adminTenants(a *administration) {
	tenants := a.admin.Tenants()
	data := utils.TenantData{Name: "own-" + a.tenant, AdminRoles: []string{"a"}, AllowedClusters: []string{cluster}}
	done(tenants.Create(data))
	expect(slices.Contains(must(tenants.List()), data.Name), "%s is not in the list", data.Name)
	refused(409, tenants.Create(data))
	data.AdminRoles = []string{"a", "b"}
	done(tenants.Update(data))
	same(len(must(tenants.Get(data.Name)).AdminRoles), 2)
	refused(409, tenants.Delete(a.tenant))
	done(tenants.Delete(data.Name))
	_, err := tenants.Get(data.Name)
	refused(404, err)
}

func adminNamespaces(a *administration) {
	namespaces := a.admin.Namespaces()
	same(must(namespaces.GetNamespaces(a.tenant))[0], a.namespace)
	refused(409, namespaces.CreateNamespace(a.namespace))
	expect(must(namespaces.GetPolicies(a.namespace)).Bundles.NumBundles > 0, "no bundles")
	done(a.admin.Topics().Create(a.name, 0))
	same(must(namespaces.GetTopics(a.namespace))[0], a.topic)
	refused(409, namespaces.DeleteNamespace(a.namespace))
	done(namespaces.Unload(a.namespace))
	done(a.admin.Topics().Delete(a.name, false, true))
	done(namespaces.DeleteNamespace(a.namespace))
	_, err := namespaces.GetPolicies(a.namespace)
	refused(404, err)
}

func adminNamespacePolicies(a *administration) {
	namespaces, name := a.admin.Namespaces(), a.namespaceName()
	done(namespaces.SetRetention(a.namespace, utils.NewRetentionPolicies(10, 100)))
	same(*must(namespaces.GetRetention(a.namespace)), utils.NewRetentionPolicies(10, 100))
	done(namespaces.SetNamespaceMessageTTL(a.namespace, 3600))
	same(must(namespaces.GetNamespaceMessageTTL(a.namespace)), 3600)
	refused(412, namespaces.SetNamespaceMessageTTL(a.namespace, -1))
	quota := utils.NewBacklogQuota(1<<20, -1, utils.ProducerException)
	done(namespaces.SetBacklogQuota(a.namespace, quota, utils.DestinationStorage))
	same(must(namespaces.GetBacklogQuotaMap(a.namespace))[utils.DestinationStorage], quota)
	persistence := utils.NewPersistencePolicies(1, 1, 1, 0.5)
	done(namespaces.SetPersistence(a.namespace, persistence))
	same(*must(namespaces.GetPersistence(a.namespace)), persistence)
	rate := utils.DispatchRate{DispatchThrottlingRateInMsg: 1000, DispatchThrottlingRateInByte: 2_000_000, RatePeriodInSecond: 1}
	done(namespaces.SetDispatchRate(name, rate))
	same(must(namespaces.GetDispatchRate(name)), rate)
	done(namespaces.SetMaxProducersPerTopic(name, 7))
	same(must(namespaces.GetMaxProducersPerTopic(name)), 7)
	done(namespaces.SetSchemaCompatibilityStrategy(name, utils.SchemaCompatibilityStrategyFull))
	same(must(namespaces.GetSchemaCompatibilityStrategy(name)), utils.SchemaCompatibilityStrategyFull)
	done(namespaces.UpdateProperties(name, map[string]string{"k": "v"}))
	same(must(namespaces.GetProperties(name))["k"], "v")
	done(namespaces.RemoveProperties(name))
	same(len(must(namespaces.GetProperties(name))), 0)
}

func adminTopics(a *administration) {
	topics := a.admin.Topics()
	done(topics.CreateWithProperties(a.name, 0, map[string]string{"k": "v"}))
	refused(409, topics.Create(a.name, 0))
	partitioned, single := must2(topics.List(a.namespaceName()))
	expect(len(partitioned) == 0 && slices.Contains(single, a.topic), "%v %v", partitioned, single)
	done(topics.UpdateProperties(a.name, map[string]string{"l": "w"}))
	done(topics.RemoveProperty(a.name, "k"))
	properties := must(topics.GetProperties(a.name))
	expect(len(properties) == 1 && properties["l"] == "w", "%v", properties)
	expect(strings.HasPrefix(must(topics.Lookup(a.name)).BrokerURL, "pulsar://"), "no address")
	expect(strings.HasPrefix(must(topics.GetBundleRange(a.name)), "0x"), "no bundle")
	done(topics.Unload(a.name))
	last := a.send(3)[2]
	same(must(topics.GetLastMessageID(a.name)).EntryID, last.EntryID())
	end := must(topics.Terminate(a.name))
	same(end.EntryID, last.EntryID())
	done(topics.Delete(a.name, true, true))
	_, err := topics.GetStats(a.name)
	refused(404, err)
}

func adminTopicPolicies(a *administration) {
	topics := a.admin.Topics()
	done(topics.Create(a.name, 0))
	done(topics.SetMessageTTL(a.name, 60))
	soon("a time to live", func() bool { return must(topics.GetMessageTTL(a.name)) == 60 })
	done(topics.SetMaxProducers(a.name, 1))
	soon("a maximum", func() bool { return must(topics.GetMaxProducers(a.name)) == 1 })
	producer := a.producer(pulsar.ProducerOptions{})
	defer producer.Close()
	_, err := a.client.CreateProducer(pulsar.ProducerOptions{Topic: a.topic})
	expect(err != nil, "a second producer was accepted")
	done(topics.RemoveMaxProducers(a.name))
	soon("a second producer", func() bool {
		second, err := a.client.CreateProducer(pulsar.ProducerOptions{Topic: a.topic})
		if err == nil {
			second.Close()
		}
		return err == nil
	})
}

func adminPartitioned(a *administration) {
	topics := a.admin.Topics()
	done(topics.Create(a.name, 3))
	same(must(topics.GetMetadata(a.name)).Partitions, 3)
	refused(409, topics.Create(a.name, 3))
	partitioned, single := must2(topics.List(a.namespaceName()))
	expect(len(partitioned) == 1 && len(single) == 3, "%v %v", partitioned, single)
	done(a.admin.Subscriptions().Create(a.name, "s", utils.Earliest))
	done(topics.Update(a.name, 4))
	third := *must(a.name.GetPartition(3))
	soon("a subscription of partition 3", func() bool {
		return slices.Contains(must(a.admin.Subscriptions().List(third)), "s")
	})
	a.send(8)
	stats := must(topics.GetPartitionedStats(a.name, true))
	same(len(stats.Partitions), 4)
	var arrived int64
	for _, partition := range stats.Partitions {
		arrived += partition.MsgCounterIn
	}
	same(arrived, int64(8))
	done(topics.Delete(a.name, false, false))
	_, err := topics.GetPartitionedStats(a.name, true)
	refused(404, err)
}

func adminSubscriptions(a *administration) {
	subscriptions := a.admin.Subscriptions()
	done(a.admin.Topics().Create(a.name, 0))
	done(subscriptions.Create(a.name, "s", utils.Earliest))
	refused(409, subscriptions.Create(a.name, "s", utils.Earliest))
	same(strings.Join(must(subscriptions.List(a.name)), ","), "s")
	a.send(10)
	done(subscriptions.SkipMessages(a.name, "s", 4))
	soon("six messages", func() bool { return a.backlog("s") == 6 })
	done(subscriptions.ClearBacklog(a.name, "s"))
	soon("no message", func() bool { return a.backlog("s") == 0 })
	consumer := a.consumer(pulsar.ConsumerOptions{})
	refused(412, subscriptions.Delete(a.name, "s"))
	consumer.Close()
	done(subscriptions.Delete(a.name, "s"))
	refused(404, subscriptions.Delete(a.name, "s"))
	same(len(must(subscriptions.List(a.name))), 0)
}

func adminExpire(a *administration) {
	subscriptions := a.admin.Subscriptions()
	for _, name := range []string{"s", "other"} {
		done(subscriptions.Create(a.name, name, utils.Earliest))
	}
	a.send(10)
	// A message expires when it is at least one second old; a broker that finds none refuses with 409.
	expire := func(request func() error, name string) func() bool {
		return func() bool {
			if err := request(); err != nil {
				refused(409, err)
			}
			return a.backlog(name) == 0
		}
	}
	soon("no message of s", expire(func() error { return subscriptions.ExpireMessages(a.name, "s", 1) }, "s"))
	same(a.backlog("other"), int64(10))
	soon("no message of other", expire(func() error { return subscriptions.ExpireAllMessages(a.name, 1) }, "other"))
	refused(404, subscriptions.ExpireMessages(a.name, "none", 1))
}

func adminReset(a *administration) {
	subscriptions := a.admin.Subscriptions()
	// The second subscription keeps the messages that the first one skips.
	for _, name := range []string{"s", "keeps"} {
		done(subscriptions.Create(a.name, name, utils.Earliest))
	}
	ids := a.send(10)
	done(subscriptions.ClearBacklog(a.name, "s"))
	soon("no message", func() bool { return a.backlog("s") == 0 })
	done(subscriptions.ResetCursorToMessageID(a.name, "s", position(ids[5])))
	soon("five messages", func() bool { return a.backlog("s") == 5 })
	done(subscriptions.ResetCursorToTimestamp(a.name, "s", time.Now().Add(-time.Hour).UnixMilli()))
	soon("ten messages", func() bool { return a.backlog("s") == 10 })
	receive(a.consumer(pulsar.ConsumerOptions{}), 0, 10)
	refused(404, subscriptions.ResetCursorToMessageID(a.name, "none", position(ids[5])))
}

func adminMessages(a *administration) {
	subscriptions := a.admin.Subscriptions()
	done(subscriptions.Create(a.name, "s", utils.Earliest))
	ids := a.send(2)
	producer := a.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: adminWait})
	for _, text := range []string{"a", "b"} {
		message := pulsar.ProducerMessage{Payload: []byte(text), Properties: map[string]string{"p": text}}
		producer.SendAsync(context.Background(), &message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	done(producer.FlushWithCtx(context.Background()))
	producer.Close()
	peeked := must(subscriptions.PeekMessages(a.name, "s", 4))
	same(len(peeked), 4)
	for number, wanted := range [][]byte{body(0), body(1), []byte("a"), []byte("b")} {
		expect(bytes.Equal(peeked[number].GetPayload(), wanted), "%q is not %q", peeked[number].GetPayload(), wanted)
	}
	same(peeked[3].GetProperties()["p"], "b")
	found := must(subscriptions.GetMessageByID(a.name, ids[1].LedgerID(), ids[1].EntryID()))
	expect(bytes.Equal(found.GetPayload(), body(1)), "%q", found.GetPayload())
	same(must(a.admin.Topics().GetMessageID(a.name, 1)).EntryID, int64(0))
}

func adminSchemas(a *administration) {
	schemas := a.admin.Schemas()
	avro := func(definition string) utils.PostSchemaPayload {
		return utils.PostSchemaPayload{SchemaType: "AVRO", Schema: definition, Properties: map[string]string{}}
	}
	done(a.admin.Topics().Create(a.name, 0))
	_, err := schemas.GetSchemaInfo(a.topic)
	refused(404, err)
	done(schemas.CreateSchemaByPayload(a.topic, avro(firstSchema)))
	same(string(must(schemas.GetSchemaInfo(a.topic)).Schema), firstSchema)
	expect(must(schemas.TestCompatibilityWithPostSchemaPayload(a.topic, avro(secondSchema))).IsCompatibility, "the second fits")
	done(schemas.CreateSchemaByPayload(a.topic, avro(secondSchema)))
	same(must(schemas.GetSchemaInfoWithVersion(a.topic)).Version, int64(1))
	same(must(schemas.GetVersionByPayload(a.topic, avro(firstSchema))), int64(0))
	same(string(must(schemas.GetSchemaInfoByVersion(a.topic, 0)).Schema), firstSchema)
	same(len(must(schemas.GetAllSchemas(a.topic))), 2)
	refused(409, schemas.CreateSchemaByPayload(a.topic, avro(otherSchema)))
	done(schemas.DeleteSchema(a.topic))
	_, err = schemas.GetSchemaInfo(a.topic)
	refused(404, err)
}

func adminPermissions(a *administration) {
	namespaces, topics, name := a.admin.Namespaces(), a.admin.Topics(), a.namespaceName()
	consume := []utils.AuthAction{must(utils.ParseAuthAction("consume"))}
	done(namespaces.GrantNamespacePermission(name, "r", consume))
	same(must(namespaces.GetNamespacePermissions(name))["r"][0], consume[0])
	done(namespaces.RevokeNamespacePermission(name, "r"))
	same(len(must(namespaces.GetNamespacePermissions(name))), 0)
	done(topics.Create(a.name, 0))
	done(topics.GrantPermission(a.name, "q", consume))
	same(must(topics.GetPermissions(a.name))["q"][0], consume[0])
	done(topics.RevokePermission(a.name, "q"))
	same(len(must(topics.GetPermissions(a.name))), 0)
	done(namespaces.GrantSubPermission(name, "s", []string{"r"}))
	same(must(namespaces.GetSubPermissions(name))["s"][0], "r")
	done(namespaces.RevokeSubPermission(name, "s", "r"))
}

func adminStats(a *administration) {
	topics := a.admin.Topics()
	consumer := a.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, Name: "reads"})
	defer consumer.Close()
	a.send(5)
	receive(consumer, 0, 3)
	soon("two messages", func() bool { return a.backlog("s") == 2 })
	stats := must(topics.GetStats(a.name))
	same(stats.MsgCounterIn, int64(5))
	same(stats.Subscriptions["s"].SubType, "Shared")
	same(stats.Subscriptions["s"].Consumers[0].ConsumerName, "reads")
	inner := must(topics.GetInternalStats(a.name))
	same(inner.NumberOfEntries, int64(5))
	same(inner.State, "LedgerOpened")
	same(len(inner.Cursors), 1)
	same(len(must(topics.GetInternalInfo(a.name)).Ledgers), 1)
}

func adminBrokers(a *administration) {
	brokers := a.admin.Brokers()
	done(brokers.HealthCheck())
	active := must(brokers.GetActiveBrokers(cluster))
	same(len(active), 1)
	same(must(brokers.GetLeaderBroker()).BrokerID, active[0])
	expect(slices.Contains(must(brokers.GetDynamicConfigurationNames()), "maxConcurrentLookupRequest"), "no such key")
	expect(len(must(brokers.GetRuntimeConfigurations())) > 0, "no settings")
	var stats admin.BrokerStats = a.admin.BrokerStats()
	expect(len(must(stats.GetMetrics())) > 0, "no metrics")
}
