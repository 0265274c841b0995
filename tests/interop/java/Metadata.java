import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.mledger.ReadOnlyCursor;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.broker.service.schema.PositionInfo;
import org.apache.pulsar.broker.service.schema.SchemaEntry;
import org.apache.pulsar.broker.service.schema.SchemaLocator;
import org.apache.pulsar.broker.service.schema.proto.SchemaInfo;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicDomain;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.BookiesRackConfiguration;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * Reads a metadata store and its ledgers with the classes of Apache's broker, without a broker, and prints JSON.
 *
 * Arguments: host:port/chroot, tenant/namespace, and names of topics in it.
 */
public class Metadata {
    private static final int TIMEOUT_MS = 30_000;
    private static final ObjectMapper JSON = ObjectMapperFactory.create();

    public static void main(String[] arguments) {
        int status = 0;
        try {
            read(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            status = 1;
        }
        System.exit(status); // Some threads of the libraries stay.
    }

    private static void read(String[] arguments) throws Exception {
        String cluster = arguments[0];
        NamespaceName namespace = NamespaceName.get(arguments[1]);
        ObjectNode found = JSON.createObjectNode();
        ClientConfiguration bookies = new ClientConfiguration();
        bookies.setMetadataServiceUri("zk+hierarchical://" + cluster + "/ledgers");
        MetadataStoreExtended store = PulsarResources.createLocalMetadataStore("zk:" + cluster, TIMEOUT_MS, false);
        readDocuments(found, new PulsarResources(store, store), namespace);
        BookKeeper client = new BookKeeper(bookies);
        ManagedLedgerFactoryImpl factory = new ManagedLedgerFactoryImpl(store, bookies);
        ObjectNode topics = found.putObject("topics");
        for (int at = 2; at < arguments.length; at++) {
            ObjectNode topic = topics.putObject(arguments[at]);
            String name = namespace + "/persistent/" + arguments[at];
            topic.set("info", JSON.valueToTree(factory.getManagedLedgerInfo(name)));
            readEntries(topic.putArray("messages"), factory, name);
            readSchemas(topic.putArray("schemas"), store, client, "/schemas/" + namespace + "/" + arguments[at]);
            readCursors(topic, factory, name);
        }
        ArrayNode ledgers = found.putArray("ledgers");
        new BookKeeperAdmin(client, bookies).listLedgers().forEach(ledgers::add);
        factory.shutdown();
        client.close();
        store.close();
        System.out.println(JSON.writeValueAsString(found));
    }

    private static void readDocuments(ObjectNode found, PulsarResources resources, NamespaceName namespace)
            throws Exception {
        found.set("clusters", JSON.valueToTree(resources.getClusterResources().list()));
        found.set("tenant", JSON.valueToTree(resources.getTenantResources().getTenant(namespace.getTenant()).get()));
        found.set("policies", JSON.valueToTree(resources.getNamespaceResources().getPolicies(namespace).get()));
        found.set("local", JSON.valueToTree(resources.getLocalPolicies().getLocalPolicies(namespace).orElse(null)));
        found.set("settings",
                JSON.valueToTree(resources.getDynamicConfigResources().getDynamicConfiguration().orElse(null)));
        found.set("racks", JSON.valueToTree(
                resources.getBookieResources().get().get().orElseGet(BookiesRackConfiguration::new)));
        ObjectNode groups = found.putObject("groups");
        for (String name : resources.getResourcegroupResources().listResourceGroups()) {
            groups.set(name, JSON.valueToTree(resources.getResourcegroupResources().getResourceGroup(name).get()));
        }
        ObjectNode partitioned = found.putObject("partitioned");
        var topics = resources.getNamespaceResources().getPartitionedTopicResources();
        for (String name : topics.listPartitionedTopicsAsync(namespace, TopicDomain.persistent).get()) {
            partitioned.set(name,
                    JSON.valueToTree(topics.getPartitionedTopicMetadataAsync(TopicName.get(name)).get().get()));
        }
    }

    /** Reads the payloads without taking the topic from anybody. */
    private static void readEntries(ArrayNode messages, ManagedLedgerFactoryImpl factory, String name)
            throws Exception {
        ReadOnlyCursor cursor =
                factory.openReadOnlyCursor(name, PositionFactory.EARLIEST, new ManagedLedgerConfig());
        while (cursor.hasMoreEntries()) {
            for (Entry entry : cursor.readEntries(100)) {
                ByteBuf data = entry.getDataBuffer();
                Commands.skipBrokerEntryMetadataIfExist(data);
                Commands.parseMessageMetadata(data);
                messages.add(data.toString(StandardCharsets.UTF_8));
                entry.release();
            }
        }
        cursor.close();
    }

    private static void readSchemas(ArrayNode schemas, MetadataStoreExtended store, BookKeeper client, String path)
            throws Exception {
        var node = store.get(path).get();
        if (node.isEmpty()) {
            return;
        }
        SchemaLocator locator = new SchemaLocator();
        locator.parseFrom(node.get().getValue());
        for (int at = 0; at < locator.getIndexsCount(); at++) {
            PositionInfo position = locator.getIndexAt(at).getPosition();
            LedgerHandle ledger = client.openLedgerNoRecovery(
                    position.getLedgerId(), BookKeeper.DigestType.CRC32C, new byte[0]);
            SchemaEntry entry = new SchemaEntry();
            entry.parseFrom(
                    ledger.readEntries(position.getEntryId(), position.getEntryId()).nextElement().getEntry());
            SchemaInfo info = new SchemaInfo();
            info.parseFrom(entry.getSchemaData());
            schemas.add(info.getType() + " " + new String(info.getSchema(), StandardCharsets.UTF_8));
            ledger.close();
        }
    }

    /** Opens the topic as a broker does, so that positions are read from the ledgers of cursors too. */
    private static void readCursors(ObjectNode topic, ManagedLedgerFactoryImpl factory, String name)
            throws Exception {
        ManagedLedgerConfig oneBookie = new ManagedLedgerConfig();
        oneBookie.setEnsembleSize(1).setWriteQuorumSize(1).setAckQuorumSize(1).setMetadataEnsembleSize(1)
                .setMetadataWriteQuorumSize(1).setMetadataAckQuorumSize(1);
        ManagedLedger ledger = factory.open(name, oneBookie);
        topic.set("properties", JSON.valueToTree(new TreeMap<>(ledger.getProperties())));
        topic.put("terminated", ledger.isTerminated());
        ObjectNode cursors = topic.putObject("cursors");
        for (ManagedCursor cursor : ledger.getCursors()) {
            ObjectNode one = cursors.putObject(cursor.getName());
            one.put("markDelete", cursor.getMarkDeletedPosition().toString());
            one.put("backlog", cursor.getNumberOfEntriesInBacklog(true));
            one.put("holes", cursor.getTotalNonContiguousDeletedMessagesRange());
            Map<String, String> properties = new TreeMap<>(cursor.getCursorProperties());
            one.set("properties", JSON.valueToTree(properties));
        }
        ledger.close();
    }
}
