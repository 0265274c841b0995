import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;

/**
 * BookKeeper's own client against a bookie: `java Ledgers.java METADATA_URI v2|v3 BOOKIE_ID [AUTHORITY]` runs the checks, each on ledgers
 * of its own, behind TLS when the file of an authority is named, and prints a line for each: `ok NAME` or `failed NAME: REASON`. A line `kill` asks for the bookie to be killed
 * and started again, and the next line of standard input says that it is back. It exits 0 when all were run.
 */
public final class Ledgers {
    interface Check {
        void run(Ledgers bench) throws Exception;
    }

    static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);
    static final int WAIT_S = 60;
    static final Map<String, Check> BOTH = new LinkedHashMap<>();
    static final Map<String, Check> V2 = new LinkedHashMap<>();
    static final Map<String, Check> V3 = new LinkedHashMap<>();

    static {
        BOTH.put("write_and_read_with_every_digest", Ledgers::everyDigest);
        BOTH.put("many_adds_without_waiting", Ledgers::manyAdds);
        BOTH.put("a_reader_follows_the_writer", Ledgers::readerFollows);
        BOTH.put("recovery_takes_all_and_fences_the_writer", Ledgers::recovery);
        BOTH.put("a_never_written_ledger_is_recovered_and_fenced", Ledgers::emptyRecovery);
        BOTH.put("a_recovered_ledger_after_a_kill", Ledgers::recoveryAfterKill);
        BOTH.put("the_fence_of_an_empty_ledger_survives_a_kill", Ledgers::fenceSurvivesKill);
        V2.put("batch_read", Ledgers::batchRead);
        V3.put("explicit_lac_survives_a_kill", Ledgers::explicitLac);
        V3.put("long_poll", Ledgers::longPoll);
        V3.put("deferred_sync_and_force", Ledgers::deferredSync);
        V3.put("list_of_entries", Ledgers::listOfEntries);
        V3.put("bookie_info", Ledgers::bookieInfo);
    }

    final String uri;
    final boolean v2;
    final String trusted;
    final BookieId bookie;
    final BookKeeper writer;
    final BookKeeper reader;
    final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    Ledgers(String uri, boolean v2, String bookie, String trusted) throws Exception {
        this.uri = uri;
        this.v2 = v2;
        this.trusted = trusted;
        this.bookie = BookieId.parse(bookie);
        this.writer = client(0);
        this.reader = client(0);
    }

    public static void main(String[] words) throws Exception {
        boolean v2 = words[1].equals("v2");
        Ledgers bench = new Ledgers(words[0], v2, words[2], words.length > 3 ? words[3] : null);
        Map<String, Check> checks = new LinkedHashMap<>(BOTH);
        checks.putAll(v2 ? V2 : V3);
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            try {
                check.getValue().run(bench);
                say("ok " + check.getKey());
            } catch (Exception | AssertionError error) {
                StackTraceElement where = error.getStackTrace().length == 0 ? null : error.getStackTrace()[0];
                say("failed " + check.getKey() + ": " + error.toString().replace('\n', ' ') + " at " + where);
            }
        }
        bench.writer.close();
        bench.reader.close();
        System.exit(0);
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void expect(boolean good, String what) {
        if (!good) {
            throw new AssertionError(what);
        }
    }

    BookKeeper client(int explicitLacMs) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(uri);
        conf.setUseV2WireProtocol(v2);
        conf.setExplictLacInterval(explicitLacMs);
        conf.setBatchReadEnabled(true);
        conf.setAddEntryTimeout(5);
        conf.setReadEntryTimeout(5);
        if (trusted != null) {
            conf.setTLSProviderFactoryClass("org.apache.bookkeeper.tls.TLSContextFactory");
            conf.setTLSProvider("JDK");
            conf.setTLSTrustStoreType("PEM");
            conf.setTLSTrustStore(trusted);
        }
        return new BookKeeper(conf);
    }

    LedgerHandle create(BookKeeper client, DigestType digest) throws Exception {
        return client.createLedger(1, 1, 1, digest, PASSWORD);
    }

    static byte[] payload(long ledger, int entry) {
        Random random = new Random(ledger * 31 + entry);
        byte[] bytes = new byte[entry % 7 == 6 ? 100_000 : random.nextInt(300)];
        random.nextBytes(bytes);
        return bytes;
    }

    static void add(LedgerHandle ledger, int first, int count) throws Exception {
        for (int entry = first; entry < first + count; entry++) {
            expect(ledger.addEntry(payload(ledger.getId(), entry)) == entry, "entry " + entry);
        }
    }

    static void expectEntries(LedgerHandle ledger, Enumeration<LedgerEntry> found, int first, int count) {
        for (int entry = first; entry < first + count; entry++) {
            expect(found.hasMoreElements(), "entry " + entry + " is there");
            LedgerEntry next = found.nextElement();
            expect(next.getEntryId() == entry, "entry " + entry + ", not " + next.getEntryId());
            expect(Arrays.equals(next.getEntry(), payload(ledger.getId(), entry)), "bytes of entry " + entry);
        }
        expect(!found.hasMoreElements(), "nothing more");
    }

    void killTheBookie() throws Exception {
        say("kill");
        expect(input.readLine() != null, "the bookie is back");
    }

    void everyDigest() throws Exception {
        for (DigestType digest : DigestType.values()) {
            LedgerHandle ledger = create(writer, digest);
            add(ledger, 0, 30);
            ledger.close();
            LedgerHandle again = reader.openLedger(ledger.getId(), digest, PASSWORD);
            expect(again.isClosed() && again.getLastAddConfirmed() == 29, "closed at 29");
            expectEntries(again, again.readEntries(0, 29), 0, 30);
            again.close();
        }
    }

    void manyAdds() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        int count = 5000;
        CompletableFuture<Integer> done = new CompletableFuture<>();
        for (int entry = 0; entry < count; entry++) {
            byte[] bytes = ("entry " + entry).getBytes(StandardCharsets.UTF_8);
            ledger.asyncAddEntry(bytes, (rc, handle, id, number) -> {
                if (rc != BKException.Code.OK || id != (Integer) number) {
                    done.completeExceptionally(new AssertionError("add " + number + ": " + rc + ", id " + id));
                } else if (id == count - 1) {
                    done.complete(rc);
                }
            }, entry);
        }
        done.get(WAIT_S, TimeUnit.SECONDS);
        ledger.close();
        LedgerHandle again = reader.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD);
        Enumeration<LedgerEntry> found = again.readEntries(0, count - 1);
        for (int entry = 0; entry < count; entry++) {
            String text = new String(found.nextElement().getEntry(), StandardCharsets.UTF_8);
            expect(text.equals("entry " + entry), text);
        }
    }

    void readerFollows() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        add(ledger, 0, 10);
        LedgerHandle open = reader.openLedgerNoRecovery(ledger.getId(), DigestType.CRC32C, PASSWORD);
        expect(open.getLastAddConfirmed() == 8, "the LAC trails by one: " + open.getLastAddConfirmed());
        expectEntries(open, open.readEntries(0, 8), 0, 9);
        expectEntries(open, open.readUnconfirmedEntries(9, 9), 9, 1);
        add(ledger, 10, 1);
        expect(open.readLastConfirmed() == 9, "the LAC moved");
        ledger.close();
    }

    void recovery() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        add(ledger, 0, 20);
        LedgerHandle recovered = reader.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD);
        expect(recovered.isClosed() && recovered.getLastAddConfirmed() == 19, "closed at 19");
        expectEntries(recovered, recovered.readEntries(0, 19), 0, 20);
        expectFenced(ledger);
    }

    void emptyRecovery() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        LedgerHandle recovered = reader.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD);
        expect(recovered.isClosed() && recovered.getLastAddConfirmed() == -1, "closed without entries");
        expectFenced(ledger);
    }

    static void expectFenced(LedgerHandle ledger) throws Exception {
        try {
            ledger.addEntry("too late".getBytes(StandardCharsets.UTF_8));
        } catch (BKException.BKLedgerFencedException error) {
            return;
        }
        throw new AssertionError("the old writer goes on");
    }

    void recoveryAfterKill() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.MAC);
        add(ledger, 0, 20);
        killTheBookie();
        LedgerHandle recovered = reader.openLedger(ledger.getId(), DigestType.MAC, PASSWORD);
        expect(recovered.getLastAddConfirmed() == 19, "closed at 19");
        expectEntries(recovered, recovered.readEntries(0, 19), 0, 20);
        expectFenced(ledger);
    }

    void fenceSurvivesKill() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        expect(reader.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD).isClosed(), "recovered");
        killTheBookie();
        expectFenced(ledger);
    }

    void batchRead() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        add(ledger, 0, 30);
        ledger.close();
        LedgerHandle again = reader.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD);
        int entry = 0;
        int calls = 0;
        while (entry < 30) {
            try (LedgerEntries found = again.batchReadAsync(entry, 100, 250_000).get(WAIT_S, TimeUnit.SECONDS)) {
                for (org.apache.bookkeeper.client.api.LedgerEntry each : found) {
                    expect(each.getEntryId() == entry, "entry " + entry);
                    expect(Arrays.equals(each.getEntryBytes(), payload(ledger.getId(), entry)), "bytes of " + entry);
                    entry++;
                }
                calls++;
            }
        }
        expect(calls > 1 && calls < 10, calls + " calls");
    }

    void explicitLac() throws Exception {
        BookKeeper client = client(20);
        try {
            LedgerHandle ledger = create(client, DigestType.CRC32C);
            add(ledger, 0, 10);
            LedgerHandle open = reader.openLedgerNoRecovery(ledger.getId(), DigestType.CRC32C, PASSWORD);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (open.readExplicitLastConfirmed() < 9) {
                expect(System.nanoTime() < deadline, "the LAC without a further entry");
                Thread.sleep(5);
            }
            // A reader may see it before it is on disk; a confirmed entry behind it in the journal says that it is.
            add(create(client, DigestType.CRC32C), 0, 1);
            killTheBookie();
            LedgerHandle after = reader.openLedgerNoRecovery(ledger.getId(), DigestType.CRC32C, PASSWORD);
            expect(after.readExplicitLastConfirmed() == 9, "the LAC after the kill");
        } finally {
            client.close();
        }
    }

    void longPoll() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        add(ledger, 0, 3);
        ReadHandle open = reader.openLedgerNoRecovery(ledger.getId(), DigestType.CRC32C, PASSWORD);
        CompletableFuture<LastConfirmedAndEntry> waiting = open.readLastAddConfirmedAndEntryAsync(2, 20_000, false);
        Thread.sleep(200);
        expect(!waiting.isDone(), "it waits");
        add(ledger, 3, 1);
        try (LastConfirmedAndEntry found = waiting.get(WAIT_S, TimeUnit.SECONDS)) {
            expect(found.getLastAddConfirmed() == 2, "LAC " + found.getLastAddConfirmed());
            expect(Arrays.equals(found.getEntry().getEntryBytes(), payload(ledger.getId(), 2)), "the entry comes along");
        }
        ledger.close();
    }

    void deferredSync() throws Exception {
        WriteHandle ledger = writer.newCreateLedgerOp().withEnsembleSize(1).withWriteQuorumSize(1).withAckQuorumSize(1)
            .withPassword(PASSWORD).withWriteFlags(EnumSet.of(WriteFlag.DEFERRED_SYNC)).execute().get();
        for (int entry = 0; entry < 5; entry++) {
            ledger.append(payload(ledger.getId(), entry));
        }
        expect(ledger.getLastAddConfirmed() == -1, "nothing is confirmed before the force");
        ledger.force().get(WAIT_S, TimeUnit.SECONDS);
        expect(ledger.getLastAddConfirmed() == 4, "all is confirmed after it");
        ledger.close();
    }

    void listOfEntries() throws Exception {
        LedgerHandle ledger = create(writer, DigestType.CRC32C);
        add(ledger, 0, 20);
        ledger.close();
        try (BookKeeperAdmin admin = new BookKeeperAdmin(reader, new ClientConfiguration())) {
            List<Long> wanted = new ArrayList<>();
            var found = admin.asyncGetListOfEntriesOfLedger(bookie, ledger.getId()).get(WAIT_S, TimeUnit.SECONDS);
            expect(found.getTotalNumOfAvailableEntries() == 20, found.getTotalNumOfAvailableEntries() + " entries");
            expect(found.isEntryAvailable(0) && found.isEntryAvailable(19), "first and last");
            expect(!found.isEntryAvailable(20), "no more");
        }
    }

    void bookieInfo() throws Exception {
        var info = reader.getBookieInfo().get(bookie);
        expect(info != null && info.getTotalDiskSpace() > 0 && info.getFreeDiskSpace() > 0, "info: " + info);
    }
}
