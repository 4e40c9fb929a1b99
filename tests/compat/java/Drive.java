// Drives a running server through cartridge-driver, as a Java application would.
//
// Usage: Drive PORT [USER PASSWORD]. Prints one JSON object a step, {"step", "value"} or
// {"step", "error"}; what each value must be is the business of test_java.py.

import com.fasterxml.jackson.databind.ObjectMapper;
import io.tarantool.driver.api.TarantoolClient;
import io.tarantool.driver.api.TarantoolClientFactory;
import io.tarantool.driver.api.TarantoolResult;
import io.tarantool.driver.api.conditions.Conditions;
import io.tarantool.driver.api.tuple.TarantoolTuple;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

final class Drive {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final TarantoolClient<TarantoolTuple, TarantoolResult<TarantoolTuple>> first;
    private final TarantoolClient<TarantoolTuple, TarantoolResult<TarantoolTuple>> second;

    private Drive(String[] arguments) {
        first = connect(arguments, "");
        second = connect(arguments, " and more");
    }

    private static TarantoolClient<TarantoolTuple, TarantoolResult<TarantoolTuple>> connect(
            String[] arguments, String more) {
        var builder = TarantoolClientFactory.createClient()
                .withAddress("127.0.0.1", Integer.parseInt(arguments[0]))
                .withRequestTimeout(10_000);
        return arguments.length > 1
                ? builder.withCredentials(arguments[1], arguments[2] + more).build() : builder.build();
    }

    private static void step(String name, Callable<Object> action) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        try {
            line.put("value", action.call());
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            line.put("error", String.valueOf(cause.getMessage()));
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    private List<?> tube(String method, Object... arguments) throws Exception {
        return first.call("queue.tube.java_tasks:" + method, Arrays.asList(arguments)).get();
    }

    private void tasks() throws Exception {
        step("create", () -> first.call("queue.create_tube", Arrays.asList(
                "java_tasks", "fifottl", Map.of("if_not_exists", true))).get().size());
        step("exists", () -> first.eval("return queue.tube.java_tasks ~= nil").get());
        step("put", () -> tube("put", "data"));
        step("put with options", () -> tube("put",
                Map.of("a", Arrays.asList(1, null)), Map.of("pri", 9, "ttl", 60.5)));
        step("peek", () -> tube("peek", 0));
        step("take", () -> tube("take", 0));
        step("touch", () -> tube("touch", 0, 5));
        step("release", () -> tube("release", 0, Map.of("delay", 60)));
        step("take with wait", () -> tube("take", 3));
        step("bury", () -> tube("bury", 0));
        step("kick", () -> tube("kick", 5));
        step("take again", () -> tube("take"));
        step("ack", () -> tube("ack", 0));
        step("ack again", () -> tube("ack", 0));
        step("delete", () -> tube("delete", 1));
        step("peek missing", () -> tube("peek", 1));
        step("take nothing", () -> tube("take", 0.01));
        step("state", () -> first.call("queue.state").get());
        step("alter", () -> first.call("queue.alter_tube",
                Arrays.asList("java_tasks", Map.of("capacity", 7))).get().toString()
                .contains("capacity=7"));
        step("no such tube",
                () -> first.call("queue.tube.java_nothing:put", Arrays.asList("x")).get());
    }

    private void spaces() throws Exception {
        tube("put", "row");
        step("version", () -> first.getVersion().toString().startsWith("Tarantool "));
        step("schema", () -> first.metadata().getSpaceByName("java_tasks").get().getSpaceName());
        step("select", () -> first.space("java_tasks").select(Conditions.any()).get().stream()
                .map(row -> Arrays.asList(row.getInteger(0), row.getString(1))).toList());
        step("insert", () -> first.space("java_tasks")
                .insert(new io.tarantool.driver.core.tuple.TarantoolTupleImpl(
                        Arrays.asList(7, "r"), first.getConfig().getMessagePackMapper())).get());
        step("drop", () -> tube("drop"));
        step("schema after the drop", () -> {
            first.metadata().refresh().get();
            return first.metadata().getSpaceByName("java_tasks").isPresent();
        });
    }

    private void together() throws Exception {
        first.call("queue.create_tube", Arrays.asList("java_pipe", "fifo")).get();
        String pipe = "queue.tube.java_pipe:";
        step("waits for the other connection", () -> {
            var waiting = first.call(pipe + "take", 5);
            Thread.sleep(20);
            second.call(pipe + "put", "wanted").get();
            return waiting.get();
        });
        step("owner only", () -> second.call(pipe + "ack", 0).get());
        step("pipelining", () -> {
            List<CompletableFuture<List<?>>> puts = new ArrayList<>();
            for (int number = 0; number < 200; number++) {
                puts.add(first.call(pipe + "put", number));
            }
            int same = 0;
            for (int number = 0; number < 200; number++) {
                same += ((List<?>) puts.get(number).get().get(0)).get(2).equals(number) ? 1 : 0;
            }
            return same;
        });
    }

    public static void main(String[] arguments) throws Exception {
        Drive drive = new Drive(arguments);
        step("connect", () -> drive.first.eval("return 1").get());
        if (arguments.length == 1) {
            drive.tasks();
            drive.spaces();
            drive.together();
        } else {
            step("another password", () -> drive.second.eval("return 1").get());
        }
        drive.first.close();
        drive.second.close();
        System.exit(0);
    }
}
