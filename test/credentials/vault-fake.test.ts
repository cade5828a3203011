import { VaultFake } from "../support/vault-fake.ts";
import { storeSuite } from "./store-suite.ts";

storeSuite("a store as the fake plays it", () => VaultFake.start());
